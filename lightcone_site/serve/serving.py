"""The program of `manage.py serve`, from the lock to the last process. It imports no Django (a test looks).

1. Refuse what cannot work: a malformed key, no model, a second supervisor, a used port.
2. Start the embedded Valkey, unless the settings name another.
3. Prepare the database and the static files, register the model.
4. Start the model worker, as it is the slowest; make the first accounts; start web and maintenance.
5. Watch, restart and report until a signal says stop; then drain and stop everything.

Steps 1, 3 and the accounts need Django: they are requests to a child process, which ends once the model is ready.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lightcone_site.private_files import data_tighten
from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.console import Console
from lightcone_site.serve.django_process import DjangoProcess, Refusal
from lightcone_site.serve.embedded_valkey import ValkeyNotStarted, clear_socket, is_answering
from lightcone_site.serve.lock import AlreadyServed, InstanceLock, port_problem
from lightcone_site.serve.readiness import Readiness, ready_status
from lightcone_site.serve.supervisor import Interrupted, SignalInbox, Supervisor

REFUSED = 2
"""The exit code of an installation that cannot be served as it is configured."""
VALKEY_START_S = 60.0
STOP_ORDER = ("model", "web", "maintenance", "valkey")
"""The worker drains while the web sends its streams; maintenance writes the last usage records before Valkey stops."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that the supervisor needs."""

    data_dir: str
    listen_host: str
    port: int
    host: str
    """The address at which this machine reaches the web process."""
    url: str
    model: str
    valkey_socket: str
    """Of the embedded Valkey; empty without one."""


def main() -> int:
    try:
        serve(Console(), DjangoProcess())
    except (Refusal, AlreadyServed, ValkeyNotStarted) as refusal:
        sys.stderr.write(f"Lightcone cannot start: {refusal}\n")
        return REFUSED
    return 0


def serve(console: Console, django: DjangoProcess) -> None:
    """Run until stopped. Raises Refusal, AlreadyServed and ValkeyNotStarted; no process is left running then either."""
    api_key, admin_password = take_secret("LIGHTCONE_API_KEY"), take_secret("LIGHTCONE_ADMIN_PASSWORD")
    try:
        with SignalInbox().installed() as inbox:
            plan = Plan(**django.ask("plan", api_key=api_key))
            lock = InstanceLock(Path(plan.data_dir, "run", "serve.lock"))
            try:
                data_tighten(Path(plan.data_dir))
                # Early, as a web process that cannot listen would only say so in its log.
                if problem := port_problem(plan.listen_host, plan.port):
                    raise Refusal(f"{plan.listen_host}:{plan.port} {problem}. Set LIGHTCONE_HOST or LIGHTCONE_PORT.")
                secrets = {"api_key": api_key, "admin_password": admin_password}
                _serve_locked(console, Supervisor(console, inbox), django, plan, secrets)
            finally:
                lock.release()
    finally:
        django.close()


def take_secret(name: str) -> str:
    """Return the secret for the first start, "" if unset, and remove it from the environment and /proc/PID/environ."""
    value = os.environ.get(name, "")
    if value:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        ctypes.memset(libc.getenv(name.encode()), ord("*"), len(os.fsencode(value)))
        del os.environ[name]
    return value.strip()


def _serve_locked(
    console: Console, supervisor: Supervisor, django: DjangoProcess, plan: Plan, secrets: dict[str, str]
) -> None:
    addresses: list[tuple[str, str]] = []
    try:
        supervisor.check()
        specs = {name: ChildSpec.from_json(values) for name, values in django.ask("components").items()}
        if plan.valkey_socket:
            _start_valkey(console, supervisor, specs["valkey"], Path(plan.valkey_socket))
        django.ask("prepare")
        supervisor.check()
        supervisor.add(specs["model"])
        addresses = django.ask("accounts", **secrets)
        supervisor.add(specs["web"])
        supervisor.add(specs["maintenance"])
        console.ok("maintenance", "started")
        readiness = Readiness(
            console,
            ask=lambda: ready_status(plan.host, plan.port),
            status=lambda: django.model_status(plan.model),
            clock=time.monotonic,
            model=plan.model,
            url=plan.url,
        )

        def each_turn() -> None:
            readiness.turn()
            if readiness.is_settled:
                _show_once(console, addresses)
            if readiness.is_ready:
                django.close()

        supervisor.run(each_turn)
    except Interrupted:
        pass
    finally:
        _show_once(console, addresses)
        console.blank()
        supervisor.stop(STOP_ORDER)
        if plan.valkey_socket:
            Path(plan.valkey_socket).unlink(missing_ok=True)


def _show_once(console: Console, addresses: list[tuple[str, str]]) -> None:
    """Show the addresses, and the secrets that this start has made, and empty the list."""
    if not addresses:
        return
    console.blank()
    for label, text in addresses:
        console.detail(label, text)
    console.blank()
    console.detail("", "Ctrl-C stops everything.")
    console.blank()
    addresses.clear()


def _start_valkey(console: Console, supervisor: Supervisor, spec: ChildSpec, path: Path) -> None:
    clear_socket(path)
    child = supervisor.add(spec)
    if not supervisor.wait_for(lambda: is_answering(path), timeout_s=VALKEY_START_S):
        log = " / ".join(child.last_log_lines())
        raise Refusal(f"the embedded Valkey does not answer; its log ({spec.log_path}) ends with: {log}")
    console.ok("valkey", f"embedded, {path}")
