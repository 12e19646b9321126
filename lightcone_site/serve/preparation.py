"""The part of `manage.py serve` that needs Django: a child that answers the supervisor's requests (django_process.py).

plan        check what can be checked before anything starts
components  describe the processes: what runs where, with which environment and which time to stop
prepare     migrate the database and collect static files (usually nothing to do), register the model
accounts    make the first accounts and return the addresses and secrets to show
status      read the state of the model
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import DatabaseError, connections

from chat.access.accounts import bootstrap_create
from chat.access.keys import KeyRefused, key_public_id
from chat.catalog.model_choice import ModelChoice, NoModel, model_choice
from chat.catalog.models import ModelState, ServedModel
from chat.catalog.services import model_register, model_state_report
from chat.catalog.stored_models import stored_models_offer
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from lightcone_site.databases import embedded_valkey_socket
from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.console import Console
from lightcone_site.serve.django_process import Refusal
from lightcone_site.serve.embedded_valkey import ValkeyNotStarted, valkey_spec

SHOWN_NAMES = 6
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def answer_requests(descriptor: int) -> None:
    """Answer the requests that come through a socket until the supervisor closes it. All may raise Refusal."""
    console = Console()
    requests: dict[str, Callable[..., Any]] = {
        "plan": partial(plan, console),
        "components": components,
        "prepare": partial(prepare, console),
        "accounts": show_accounts,
        "status": model_status,
    }
    with contextlib.suppress(BrokenPipeError), socket.socket(fileno=descriptor) as connection:
        lines = connection.makefile("rw")
        for line in lines:
            name, arguments = json.loads(line)
            try:
                answer = {"result": requests[name](**arguments)}
            except Refusal as refusal:
                answer = {"refused": str(refusal)}
            lines.write(json.dumps(answer, default=str) + "\n")
            lines.flush()


def plan(console: Console, *, api_key: str) -> dict[str, Any]:
    """Check the key and the model. Return the fields of `serving.Plan`."""
    console.title("Lightcone")
    if settings.LIGHTCONE_SETTINGS_REMARKS:
        console.problem("settings", settings.LIGHTCONE_SETTINGS_REMARKS)
    if api_key:
        with refused_if(KeyRefused, "LIGHTCONE_API_KEY cannot be used: "):
            key_public_id(raw=api_key)
    with refused_if(NoModel):
        model = served_model_choice().name
    host, url = local_address()
    return {
        "data_dir": settings.DATA_DIR,
        "listen_host": settings.LIGHTCONE_HOST,
        "port": settings.LIGHTCONE_PORT,
        "host": host,
        "url": url,
        "model": model,
        "valkey_socket": embedded_valkey_socket(settings.DATA_DIR) if settings.LIGHTCONE_EMBEDDED_VALKEY else "",
    }


def components() -> dict[str, Any]:
    """Return the specs by name. Called with the lock held, as the embedded Valkey's configuration is written."""
    with refused_if(ValkeyNotStarted):
        return {spec.name: dataclasses.asdict(spec) for spec in component_specs()}


def prepare(console: Console) -> None:
    """Update the database and the static files, and register the model. The embedded Valkey must run."""
    if not settings.LIGHTCONE_EMBEDDED_VALKEY:
        check_named_valkey(console)
    choice = served_model_choice()
    try:
        update_files(console)
        model = model_register(name=choice.name, path=str(choice.path), make_default=True)
        store = ModelStore(settings.LIGHTCONE_MODEL_STORE)
        stored_models_offer(store=store)
        if names := [name for name in store.names() if name != choice.name]:
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            console.ok("models", f"loaded on demand: {', '.join(names[:SHOWN_NAMES])}{more}")
        # A killed run may have left "ready" behind.
        model_state_report(name=model.name, state=str(ModelState.LOADING), reason="starting")
    except DatabaseError as error:
        raise Refusal(f"{database_label()} cannot be used: {str(error).strip()}") from None
    except ValidationError as error:
        raise Refusal(f"the model cannot be registered: {' '.join(error.messages)}") from None
    except StoreError as error:
        console.problem("models", f"{error} Its models are not offered")


@contextlib.contextmanager
def refused_if(error: type[Exception], prefix: str = "") -> Iterator[None]:
    """Raise Refusal in place of this error."""
    try:
        yield
    except error as reason:
        raise Refusal(f"{prefix}{reason}") from None


def served_model_choice() -> ModelChoice:
    """Return the model that the settings name. Raises NoModel."""
    return model_choice(
        path=settings.LIGHTCONE_MODEL, name=settings.LIGHTCONE_MODEL_NAME, store=settings.LIGHTCONE_MODEL_STORE
    )


def component_specs() -> Iterator[ChildSpec]:
    """Describe all components. Raises ValkeyNotStarted."""
    if settings.LIGHTCONE_EMBEDDED_VALKEY:
        yield valkey_spec(
            data_dir=settings.DATA_DIR,
            socket_path=embedded_valkey_socket(settings.DATA_DIR),
            log_path=log_path("valkey"),
            max_bytes=settings.LIGHTCONE_VALKEY_BYTES,
        )
    yield component_spec("web", ("-m", "lightcone_site.web"), stop_s=settings.LIGHTCONE_DRAIN_DELAY_S + 15.0)
    yield model_spec(served_model_choice())
    yield component_spec("maintenance", worker_arguments("maintenance"), stop_s=15.0)


def model_spec(choice: ModelChoice) -> ChildSpec:
    """Describe the worker that loads and serves the model. It has the drain time and a little more to stop."""
    model = {"LIGHTCONE_MODEL": str(choice.path), "LIGHTCONE_MODEL_NAME": choice.name}
    return component_spec("model", worker_arguments("model"), stop_s=settings.LIGHTCONE_DRAIN_S + 10.0, **model)


def worker_arguments(role: str) -> tuple[str, ...]:
    return ("-m", "lightcone_site.worker", "--name", f"{role}@%h")


def component_spec(role: str, arguments: tuple[str, ...], *, stop_s: float, **environment: str) -> ChildSpec:
    """Describe a Python process of ours. It gets this process's environment, without secrets of the first start."""
    common = {
        "LIGHTCONE_ROLE": role,
        "LIGHTCONE_DATA_DIR": str(settings.DATA_DIR),  # absolute, as the process runs in another folder
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
        "PYTHONUNBUFFERED": "1",
    }
    return ChildSpec(
        name=role,
        command=(sys.executable, *arguments),
        directory=settings.BASE_DIR,
        log_path=log_path(role),
        environment={**os.environ, **common, **environment},
        stop_s=stop_s,
    )


def log_path(name: str) -> Path:
    return Path(settings.DATA_DIR, "logs", f"{name}.log")


def check_named_valkey(console: Console) -> None:
    """Report the state of the Valkey of LIGHTCONE_REDIS_URL. It may be down for a while: the start goes on."""
    try:
        policy = eviction_policy()
    except redis.RedisError as error:
        effect = "requests are answered 503 until it does"
        console.problem("valkey", f"LIGHTCONE_REDIS_URL does not answer ({error}); {effect}")
        return
    if policy == "noeviction":
        console.ok("valkey", "the one of LIGHTCONE_REDIS_URL")
    else:
        console.problem("valkey", f"maxmemory-policy is {policy}: it would lose requests; set it to noeviction")


def eviction_policy() -> str:
    """Return the `maxmemory-policy` of LIGHTCONE_REDIS_URL. Raises redis.RedisError if it does not answer."""
    with redis.Redis.from_url(settings.LIGHTCONE_REDIS_URL, socket_timeout=3, socket_connect_timeout=3) as client:
        return str(client.info("memory").get("maxmemory_policy", "noeviction"))


def update_files(console: Console) -> None:
    """Migrate the database and collect static files, unless the mark of the last preparation still fits."""
    mark = settings.DATA_DIR / "run" / "prepared"
    fingerprint = installation_fingerprint()
    if _is_local_database_present() and mark.exists() and mark.read_text() == fingerprint:
        console.ok("database", f"{database_label()}, up to date")
        return
    mark.unlink(missing_ok=True)
    console.progress("database", "applying migrations")
    call_command("migrate", interactive=False, verbosity=0)
    console.ok("database", f"{database_label()}, migrated")
    console.progress("static files", "collecting")
    call_command("collectstatic", interactive=False, clear=True, verbosity=0, stdout=io.StringIO())
    console.ok("static files", str(settings.STATIC_ROOT))
    connections.close_all()
    mark.write_text(fingerprint)


def installation_fingerprint() -> str:
    """Return a digest of interpreter, requirements, migrations, static files with their naming, and the database.

    Places within the data directory are named from there: a directory that is moved or copied stays prepared.
    """
    database = settings.DATABASES["default"]
    places = (str(place) for place in (*map(database.get, ("ENGINE", "NAME", "HOST", "PORT")), settings.STATIC_ROOT))
    digest = hashlib.sha256()
    for part in (sys.version, *(place.removeprefix(f"{settings.DATA_DIR}{os.sep}") for place in places)):
        digest.update(part.encode() + b"\0")
    digest.update((settings.BASE_DIR / "requirements.txt").read_bytes())
    package = settings.BASE_DIR / "chat"
    static = (path for path in (package / "static").rglob("*") if path.is_file())
    naming = [package / "playground" / name for name in ("modules.py", "joined.py")]
    naming.append(settings.BASE_DIR / "lightcone_site" / "static_files.py")
    for path in sorted([*(package / "migrations").glob("*.py"), *static, *naming]):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _is_local_database_present() -> bool:
    """Return True if SQLite's file exists. The tables of a server are never taken for granted."""
    database = settings.DATABASES["default"]
    return database["ENGINE"].endswith("sqlite3") and Path(database["NAME"]).exists() and settings.STATIC_ROOT.exists()


def database_label() -> str:
    """Return the kind and place of the database, without its password."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        return f"SQLite {database['NAME']}"
    return f"PostgreSQL {database['HOST'] or 'local socket'}/{database['NAME']}"


def show_accounts(api_key: str, admin_password: str) -> list[tuple[str, str]]:
    """Make the first accounts and return the lines to show. A secret that this start has made is in no other place."""
    with refused_if(KeyRefused, "LIGHTCONE_API_KEY cannot be used: "):
        made = bootstrap_create(admin_password=admin_password or None, api_key=api_key or None)
    if made.admin_password:
        sign_in = f"{made.admin_name} / {made.admin_password}   (shown once; make password sets another)"
    elif made.admin_created:
        sign_in = f"{made.admin_name} / the password of LIGHTCONE_ADMIN_PASSWORD"
    else:
        sign_in = "with the password of the first start; make password sets another"
    if made.api_key:
        key = f"{made.api_key}   (shown once; make key makes another)"
    elif api_key:
        key = "the key of LIGHTCONE_API_KEY"
    else:
        key = "one of those made before; make key makes another"
    url = local_address()[1]
    return [
        ("Playground", f"{url}/"),
        ("Console", f"{url}/admin/"),
        ("API", f"{url}/v1"),
        ("API docs", f"{url}/docs"),
        ("Logs", str(settings.DATA_DIR / "logs")),
        ("Sign in", sign_in),
        ("API key", key),
    ]


def local_address() -> tuple[str, str]:
    """Return the host and root URL at which this machine reaches the web process."""
    host = WILDCARD_HOSTS.get(settings.LIGHTCONE_HOST, settings.LIGHTCONE_HOST)
    return host, f"http://{f'[{host}]' if ':' in host else host}:{settings.LIGHTCONE_PORT}"


def model_status(model: str) -> tuple[str, str] | None:
    """Return state and reason of the model's row; None while the database is busy or unavailable."""
    row: tuple[str, str] | None = None
    with contextlib.suppress(DatabaseError):
        row = ServedModel.objects.filter(name=model).values_list("state", "state_reason").first()
    return row
