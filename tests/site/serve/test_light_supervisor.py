"""The supervisor as a process without Django, and the Django process that it asks."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat.catalog.model_choice import ModelChoice
from lightcone_site.serve import django_process
from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.django_process import DjangoProcess, Refusal
from lightcone_site.serve.lock import AlreadyServed, InstanceLock
from lightcone_site.serve.preparation import component_specs, model_spec
from lightcone_site.serve.readiness import ModelStatus
from tests.served import free_port

ROOT = Path(__file__).resolve().parents[3]
HEAVY = (
    "django",
    "celery",
    "redis",
    "lightcone_site.settings",
    "structlog",
    "chat.models",
    "engine",
    "torch",
    "numpy",
    "ssl",
    "http.client",
    "asyncio",
)

SUPERVISOR = f"""
import sys
from lightcone_site.serve.console import Console
from lightcone_site.serve.django_process import DjangoProcess
from lightcone_site.serve.serving import serve

command = (sys.executable, "-m", "tests.site.serve.scripted_preparation", *sys.argv[1:])
serve(Console(), DjangoProcess(command))
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(mode: str = "") -> subprocess.Popen[str]:
        (tmp_path / "port").write_text(str(free_port()))
        secrets = {"LIGHTCONE_API_KEY": "a secret", "LIGHTCONE_ADMIN_PASSWORD": "a password"}
        environment = os.environ | secrets | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SUPERVISOR, str(tmp_path), mode]
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for(is_true: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def num_starts(folder: Path, component: str) -> int:
    path = folder / f"{component}.starts"
    return path.read_text().count("up") if path.exists() else 0


def child_with(pid: int, word: bytes) -> int | None:
    """Return the child process with this word in its command line."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if word in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_supervisor_restarts_dead_components_and_cleans_up_at_its_stop(tmp_path: Path, start) -> None:
    process = start()
    wait_for(lambda: num_starts(tmp_path, "web") == 1, process)
    wait_for(lambda: child_with(process.pid, b"scripted_preparation") is None, process)
    assert (tmp_path / "socket").exists()
    for pid in (process.pid, *map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())):
        environment = b""
        with contextlib.suppress(OSError):  # a child of the preparation may have ended meanwhile
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"a secret" not in environment
        assert b"a password" not in environment
    with pytest.raises(AlreadyServed, match=f"served by process {process.pid}"):
        InstanceLock(tmp_path / "run" / "serve.lock")
    web = child_with(process.pid, b"server.accept")
    assert web is not None
    os.kill(web, signal.SIGKILL)
    wait_for(lambda: num_starts(tmp_path, "web") == 2, process)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "model        ok   tiny, ready after" in said
    assert said.count("Sign in      admin / a password") == 1
    assert "killed by SIGKILL; starting again in 1 s" in said
    assert "web          ok   stopped" in said
    assert not (tmp_path / "socket").exists()
    InstanceLock(tmp_path / "run" / "serve.lock").release()


def test_a_stop_during_the_preparation_starts_no_component(tmp_path: Path, start) -> None:
    process = start("slow")
    wait_for((tmp_path / "preparing").exists, process)
    process.terminate()
    (tmp_path / "go").touch()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "valkey       ok   stopped" in said
    assert num_starts(tmp_path, "model") == num_starts(tmp_path, "web") == 0
    assert "Sign in" not in said


def test_a_stop_while_accounts_are_created_still_shows_their_secrets(tmp_path: Path, start) -> None:
    """The secrets are shown once and stored nowhere."""
    process = start("stopped")
    wait_for((tmp_path / "preparing").exists, process)
    wait_for(lambda: num_starts(tmp_path, "model") == 1, process)
    process.terminate()
    (tmp_path / "go").touch()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.count("Sign in      admin / a password") == 1
    assert "model        ok   stopped" in said
    assert (tmp_path / "model.log").read_text().split() == ["stopped"]


def test_a_child_that_dies_while_accounts_are_created_is_restarted(tmp_path: Path, start) -> None:
    process = start("dead")
    wait_for(lambda: num_starts(tmp_path, "model") == 3, process)  # twice, as the script has died once
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "killed by SIGKILL; starting again in 1 s" in said
    assert (tmp_path / "model.log").read_text().split() == ["stopped"]


def test_components_stop_even_if_nothing_reads_the_console(tmp_path: Path, start) -> None:
    """As with `serve | tee log`, where Ctrl-C ends the reader first."""
    process = start()
    wait_for(lambda: num_starts(tmp_path, "web") == 1, process)
    wait_for(lambda: num_starts(tmp_path, "maintenance") == 1, process)
    process.stdout.close()
    process.terminate()
    assert process.wait(60) == 0
    assert (tmp_path / "web.log").read_text().split() == ["stopped"]
    InstanceLock(tmp_path / "run" / "serve.lock").release()


def test_manage_py_serve_imports_no_django() -> None:
    script = (
        "import json, runpy, sys, lightcone_site.serve.serving as serving\n"
        f"serving.main = lambda: print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
        "sys.argv = ['manage.py', 'serve']\n"
        "runpy.run_path('manage.py', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_child_spec_survives_json(tmp_path: Path) -> None:
    spec = ChildSpec(
        "web", ("/bin/false", "a b"), tmp_path, tmp_path / "web.log", {"A": "\udcff", "B": "=\n"}, stop_s=1.5
    )
    assert ChildSpec.from_json(json.loads(json.dumps(dataclasses.asdict(spec), default=str))) == spec


def test_components_get_the_absolute_data_directory(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTCONE_DATA_DIR", "relative")
    settings.LIGHTCONE_EMBEDDED_VALKEY = False
    places = {spec.name: spec.environment["LIGHTCONE_DATA_DIR"] for spec in component_specs()}
    assert places == dict.fromkeys(("web", "model", "maintenance"), str(settings.DATA_DIR))


def test_the_model_worker_gets_the_chosen_model(settings: Any) -> None:
    spec = model_spec(ModelChoice(Path("/models/m.gguf"), "mine"))
    chosen = [spec.environment[name] for name in ("LIGHTCONE_MODEL", "LIGHTCONE_MODEL_NAME", "LIGHTCONE_ROLE")]
    assert chosen == ["/models/m.gguf", "mine", "model"]


ANSWERS = """
import socket, sys, time
connection = socket.socket(fileno=int(sys.argv[2]))
for answer in ('["loading", "loading weights 5%"]', '["failed", "' + sys.argv[1] + '"]'):
    connection.recv(4096)
    connection.sendall(b'{"result": ' + answer.encode() + b'}\\n')
if sys.argv[1] != "short": time.sleep(60)
"""


@pytest.mark.parametrize("model", ["tiny", "short"])
def test_the_model_status_is_updated_and_a_dead_process_restarted(model: str) -> None:
    django = DjangoProcess((sys.executable, "-c", ANSWERS, model))
    try:
        for _ in range(2):
            wait_for(lambda: django.model_status("any") == ModelStatus("failed", model))
            django.close()
    finally:
        django.close()


@pytest.mark.parametrize("error", [None, OSError(12, "Cannot allocate memory")])
def test_without_a_process_the_model_status_is_unknown(monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    if error is not None:
        monkeypatch.setattr(django_process.subprocess, "Popen", refused)
    django = DjangoProcess(("/missing/program",))
    assert django.model_status("tiny") is None
    django.close()


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("import sys; sys.exit(2)", SystemExit, "2"),
        ("import os; os.kill(os.getpid(), 9)", Refusal, "the preparation ended: killed by SIGKILL"),
    ],
)
def test_a_preparation_that_fails_ends_the_start(script: str, error: type[BaseException], message: str) -> None:
    django = DjangoProcess((sys.executable, "-c", script))
    with pytest.raises(error, match=message):
        django.ask("plan", api_key="")
    django.close()


def test_a_refusal_is_raised_with_its_reason() -> None:
    script = (
        'import socket, sys; c = socket.socket(fileno=int(sys.argv[1])); c.recv(99); c.sendall(b\'{"refused": '
        '"no model"}\\n\')'
    )
    django = DjangoProcess((sys.executable, "-c", script))
    with pytest.raises(Refusal, match="no model"):
        django.ask("plan", api_key="")
    django.close()
