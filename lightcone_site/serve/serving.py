"""The story of `manage.py serve`, from the lock to the last process.

1. Refuse what cannot work: a second supervisor, a used port, a malformed key.
2. Start Valkey, or look at the one that is named.
3. Prepare the database and the static files (usually nothing to do), register the model.
4. Start the model worker, as it is the slowest; make the first accounts; start web and maintenance.
5. Watch, restart and report until the model is ready; then go on as a smaller program (handover.py, watch.py), or
   until a signal says stop: drain and stop everything.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import redis
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connections

from chat.access.accounts import Bootstrap, bootstrap_create
from chat.access.keys import KeyRefused, key_public_id
from chat.catalog.model_choice import ModelChoice, NoModel, model_choice
from chat.catalog.models import ModelState, ServedModel
from chat.catalog.services import model_register, model_state_report
from lightcone_site.databases import embedded_valkey_socket
from lightcone_site.private_files import data_tighten
from lightcone_site.serve.components import log_path, maintenance_spec, model_spec, web_spec
from lightcone_site.serve.console import Console
from lightcone_site.serve.embedded_valkey import ValkeyNotStarted, clear_socket, is_answering, valkey_spec
from lightcone_site.serve.handover import Handover, become_watcher, signals_held
from lightcone_site.serve.lock import AlreadyServed, InstanceLock
from lightcone_site.serve.model_status import model_status
from lightcone_site.serve.port import port_problem
from lightcone_site.serve.preparation import database_words, prepare
from lightcone_site.serve.readiness import Readiness, ready_status
from lightcone_site.serve.signals import SignalInbox
from lightcone_site.serve.supervisor import Interrupted, Supervisor
from lightcone_site.serve.watch import stop_everything

VALKEY_START_S = 60.0
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


class Refusal(Exception):
    """The installation cannot be served as it is configured; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Given:
    """What automation set for the first start."""

    api_key: str
    admin_password: str


def serve(console: Console) -> None:
    """Run until stopped. Raises Refusal; nothing is left running then either."""
    os.environ["LIGHTCONE_DATA_DIR"] = str(
        settings.DATA_DIR
    )  # absolute: what is started from here runs in another folder
    console.title("Lightcone")
    if settings.LIGHTCONE_SETTINGS_REMARKS:
        console.problem("settings", settings.LIGHTCONE_SETTINGS_REMARKS)
    given = Given(
        os.environ.get("LIGHTCONE_API_KEY", "").strip(), os.environ.get("LIGHTCONE_ADMIN_PASSWORD", "").strip()
    )
    _check_key(given.api_key)
    try:
        choice = model_choice(path=settings.LIGHTCONE_MODEL, name=settings.LIGHTCONE_MODEL_NAME)
        lock = InstanceLock(settings.DATA_DIR / "run" / "serve.lock")
    except (NoModel, AlreadyServed) as error:
        raise Refusal(str(error)) from None
    try:
        data_tighten(settings.DATA_DIR)
        # Early, as a web process that cannot listen would only say so in its log.
        if problem := port_problem(settings.LIGHTCONE_HOST, settings.LIGHTCONE_PORT):
            raise Refusal(
                f"{settings.LIGHTCONE_HOST}:{settings.LIGHTCONE_PORT} {problem}. Set LIGHTCONE_HOST or LIGHTCONE_PORT."
            )
        with SignalInbox().installed() as inbox:
            _serve_locked(console, Supervisor(console, inbox), choice, given, lock)
    finally:
        lock.release()


def _serve_locked(
    console: Console, supervisor: Supervisor, choice: ModelChoice, given: Given, lock: InstanceLock
) -> None:
    bootstrap = None
    is_shown = False
    socket_path = str(embedded_valkey_socket(settings.DATA_DIR)) if settings.LIGHTCONE_EMBEDDED_VALKEY else ""
    try:
        _start_valkey(console, supervisor)
        model = _prepare(console, choice)
        supervisor.add(model_spec(choice))
        bootstrap = _bootstrap(given)
        supervisor.add(web_spec())
        supervisor.add(maintenance_spec())
        console.ok("maintenance", "started")
        _leave_database()
        host, url = local_address()
        readiness = Readiness(
            console,
            ask=lambda: ready_status(host, settings.LIGHTCONE_PORT),
            status=lambda: model_status(model.name),
            clock=time.monotonic,
            model=choice.name,
            url=url,
        )

        def each_turn() -> bool:
            nonlocal is_shown
            readiness.turn()
            if readiness.is_settled and not is_shown:
                is_shown = True
                show_addresses(console, bootstrap, given)
            return readiness.is_ready

        supervisor.run(each_turn)
        if readiness.is_ready:
            _go_on_as_watcher(console, supervisor, lock, choice.name, socket_path)
            supervisor.run(readiness.turn)
    except Interrupted:
        pass
    finally:
        if bootstrap is not None and not is_shown:
            show_addresses(console, bootstrap, given)
        stop_everything(console, supervisor, socket_path)
        _leave_database()


def _go_on_as_watcher(
    console: Console, supervisor: Supervisor, lock: InstanceLock, model: str, socket_path: str
) -> None:
    """Become the smaller program. Returns where the system does not let it: what runs is more than what that saves. Raises Interrupted."""
    _leave_database()
    host, url = local_address()
    facts = {
        "lock": lock.descriptor,
        "host": host,
        "port": settings.LIGHTCONE_PORT,
        "url": url,
        "model": model,
        "socket_path": socket_path,
    }
    try:
        with signals_held():
            supervisor.check()  # what came until now would be forgotten
            become_watcher(Handover.of(supervisor.children, **facts), settings.BASE_DIR)
    except OSError as error:
        console.problem("supervisor", f"keeps the memory of the start: {error}")


def show_addresses(console: Console, bootstrap: Bootstrap, given: Given) -> None:
    """Where to go now; secrets that were made in this start are shown here and never again."""
    url = local_address()[1]
    console.blank()
    console.detail("Playground", f"{url}/")
    console.detail("Console", f"{url}/admin/")
    console.detail("API", f"{url}/v1")
    console.detail("API docs", f"{url}/docs")
    console.detail("Logs", str(settings.DATA_DIR / "logs"))
    if bootstrap.admin_password:
        console.detail(
            "Sign in", f"{bootstrap.admin_name} / {bootstrap.admin_password}   (shown once; make password sets another)"
        )
    elif bootstrap.admin_created:
        console.detail("Sign in", f"{bootstrap.admin_name} / the password of LIGHTCONE_ADMIN_PASSWORD")
    else:
        console.detail("Sign in", "with the password of the first start; make password sets another")
    if bootstrap.api_key:
        console.detail("API key", f"{bootstrap.api_key}   (shown once; make key makes another)")
    elif given.api_key:
        console.detail("API key", "the key of LIGHTCONE_API_KEY")
    else:
        console.detail("API key", "one of those made before; make key makes another")
    console.blank()
    console.detail("", "Ctrl-C stops everything.")
    console.blank()


def local_address() -> tuple[str, str]:
    """Host and root URL at which this machine reaches the web process."""
    host = WILDCARD_HOSTS.get(settings.LIGHTCONE_HOST, settings.LIGHTCONE_HOST)
    return host, f"http://{f'[{host}]' if ':' in host else host}:{settings.LIGHTCONE_PORT}"


def _check_key(raw: str) -> None:
    if raw:
        try:
            key_public_id(raw=raw)
        except KeyRefused as error:
            raise Refusal(f"LIGHTCONE_API_KEY cannot be used: {error}") from None


def _start_valkey(console: Console, supervisor: Supervisor) -> None:
    if not settings.LIGHTCONE_EMBEDDED_VALKEY:
        _look_at_valkey(console)
        return
    path = embedded_valkey_socket(settings.DATA_DIR)
    try:
        max_bytes = settings.LIGHTCONE_VALKEY_BYTES
        spec = valkey_spec(
            data_dir=settings.DATA_DIR, socket_path=path, log_path=log_path("valkey"), max_bytes=max_bytes
        )
        clear_socket(path)
    except ValkeyNotStarted as error:
        raise Refusal(str(error)) from None
    child = supervisor.add(spec)
    if not supervisor.wait_for(lambda: is_answering(path), timeout_s=VALKEY_START_S):
        raise Refusal(
            f"the embedded Valkey does not answer; its log ({spec.log_path}) ends with: {' / '.join(child.last_words())}"
        )
    console.ok("valkey", f"embedded, {path}")


def _look_at_valkey(console: Console) -> None:
    """A named Valkey may be away for a while: say so, and go on."""
    client = redis.Redis.from_url(settings.LIGHTCONE_REDIS_URL, socket_timeout=3, socket_connect_timeout=3)
    try:
        policy = str(client.info("memory").get("maxmemory_policy", "noeviction"))
    except redis.RedisError as error:
        console.problem(
            "valkey", f"LIGHTCONE_REDIS_URL does not answer ({error}); requests are answered 503 until it does"
        )
        return
    finally:
        client.close()
    if policy == "noeviction":
        console.ok("valkey", "the one of LIGHTCONE_REDIS_URL")
    else:
        console.problem("valkey", f"maxmemory-policy is {policy}: it would lose requests; set it to noeviction")


def _prepare(console: Console, choice: ModelChoice) -> ServedModel:
    try:
        prepare(console)
        model = model_register(name=choice.name, path=str(choice.path), make_default=True)
        # A killed run may have left "ready" behind.
        model_state_report(name=model.name, state=str(ModelState.LOADING), reason="starting")
        return model
    except DatabaseError as error:
        raise Refusal(f"{database_words()} cannot be used: {str(error).strip()}") from None
    except ValidationError as error:
        raise Refusal(f"the model cannot be registered: {' '.join(error.messages)}") from None


def _bootstrap(given: Given) -> Bootstrap:
    try:
        return bootstrap_create(admin_password=given.admin_password or None, api_key=given.api_key or None)
    except KeyRefused as error:
        raise Refusal(f"LIGHTCONE_API_KEY cannot be used: {error}") from None


def _leave_database() -> None:
    """Close connections and pools: the supervisor only looks now and then."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        if hasattr(connection, "close_pool"):
            connection.close_pool()
    sys.stdout.flush()
