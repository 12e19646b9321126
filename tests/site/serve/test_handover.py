"""The supervisor becomes a smaller program: it keeps its id, its children, its lock and the console. `WATCHED` is run as a process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lightcone_site.serve import serving
from lightcone_site.serve.child import Child, ChildSpec
from lightcone_site.serve.console import Console
from lightcone_site.serve.handover import Handover
from lightcone_site.serve.lock import AlreadyServed, InstanceLock
from lightcone_site.serve.readiness import ModelStatus
from lightcone_site.serve.signals import SignalInbox
from lightcone_site.serve.status_poller import StatusPoller
from lightcone_site.serve.supervisor import Interrupted, Supervisor

ROOT = Path(__file__).resolve().parents[3]
HEAVY = (
    "django",
    "celery",
    "redis",
    "lightcone_site.settings",
    "structlog",
    "chat.models",
    "engine",
    "ssl",
    "http.client",
    "asyncio",
)

WATCHED = """
import os, signal, sys, time
from pathlib import Path
from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.console import Console
from lightcone_site.serve.handover import Handover, become_watcher, signals_held
from lightcone_site.serve.lock import InstanceLock
from lightcone_site.serve.signals import SignalInbox
from lightcone_site.serve.supervisor import Supervisor

folder, root = Path(sys.argv[1]), Path(sys.argv[2])
lock = InstanceLock(folder / "serve.lock")
with SignalInbox().installed() as inbox:
    supervisor = Supervisor(Console(), inbox)
    script = "trap 'echo stopped; exit 0' TERM; echo up >> starts; while :; do sleep 0.02; done"
    child = supervisor.add(ChildSpec("web", ("/bin/sh", "-c", script), folder, folder / "web.log", dict(os.environ)))
    assert supervisor.wait_for((folder / "starts").exists, timeout_s=30)
    facts = {"host": "127.0.0.1", "port": 9, "url": "http://127.0.0.1:9", "model": "tiny", "socket_path": str(folder / "socket")}
    with signals_held():
        if "early" in sys.argv:
            os.kill(os.getpid(), signal.SIGTERM)
        if "dead" in sys.argv:
            os.kill(child.pid, signal.SIGKILL)
        become_watcher(Handover.of(supervisor.children, lock=lock.descriptor, **facts), root)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        environment = os.environ | {"LIGHTCONE_API_KEY": "a secret", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", WATCHED, str(tmp_path), str(ROOT), *words]
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


def wait_for(is_true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_watcher_restarts_what_dies_and_stops_all_with_lock_and_socket(tmp_path: Path, start) -> None:
    (tmp_path / "socket").touch()
    process = start()
    wait_for(lambda: "lightcone_site.serve.watch" in command_of(process.pid), process)
    assert b"a secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    with pytest.raises(AlreadyServed, match=f"served by process {process.pid}"):
        InstanceLock(tmp_path / "serve.lock")
    (child,) = children_of(process.pid)
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: (tmp_path / "starts").read_text().count("up") == 2, process)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "killed by SIGKILL; starting again in 1 s" in said
    assert "web          ok   stopped" in said
    assert not (tmp_path / "socket").exists()
    InstanceLock(tmp_path / "serve.lock").release()


def test_a_stop_that_comes_between_the_two_programs_is_heard_by_the_second(tmp_path: Path, start) -> None:
    process = start("early")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "web          ok   stopped" in said
    assert (tmp_path / "web.log").read_text().split() == ["stopped"]


def test_a_child_that_dies_between_the_two_programs_is_found_by_the_second(tmp_path: Path, start) -> None:
    process = start("dead")
    wait_for(lambda: (tmp_path / "starts").exists() and (tmp_path / "starts").read_text().count("up") == 2, process)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "killed by SIGKILL; starting again in 1 s" in said
    assert (tmp_path / "web.log").read_text().split() == ["stopped"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_console_that_nobody_reads_any_more_keeps_nothing_from_being_stopped(tmp_path: Path, start) -> None:
    """As with `serve | tee log`, where Ctrl-C ends the reader first."""
    process = start()
    wait_for(lambda: "lightcone_site.serve.watch" in command_of(process.pid), process)
    process.stdout.close()
    process.terminate()
    assert process.wait(60) == 0
    assert (tmp_path / "web.log").read_text().split() == ["stopped"]
    InstanceLock(tmp_path / "serve.lock").release()


def test_the_start_goes_on_where_the_smaller_program_cannot_be_had(tmp_path: Path, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(serving, "become_watcher", refused)
    output = io.StringIO()
    lock = InstanceLock(tmp_path / "serve.lock")
    with SignalInbox().installed() as inbox:
        supervisor = Supervisor(Console(output), inbox)
        serving._go_on_as_watcher(Console(output), supervisor, lock, "tiny", "")
        assert "keeps the memory of the start: [Errno 28]" in output.getvalue()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            supervisor.check()
    lock.release()


def test_what_is_handed_over_arrives_as_it_was(tmp_path: Path) -> None:
    spec = ChildSpec(
        "web", ("/bin/false", "a b"), tmp_path, tmp_path / "web.log", {"A": "\udcff", "B": "=\n"}, stop_s=1.5
    )
    handover = Handover.of(
        [Child(spec)], lock=7, host="::1", port=80, url="http://[::1]:80", model="tiny", socket_path=""
    )
    assert Handover.unpack(handover.pack()) == handover


def test_what_is_started_finds_the_data_wherever_it_runs(settings, monkeypatch) -> None:
    def served(_: Path) -> InstanceLock:
        raise AlreadyServed("by another")

    monkeypatch.setenv("LIGHTCONE_DATA_DIR", "relative")
    monkeypatch.setattr(serving, "InstanceLock", served)
    with pytest.raises(serving.Refusal, match="by another"):
        serving.serve(Console(io.StringIO()))
    assert os.environ["LIGHTCONE_DATA_DIR"] == str(settings.DATA_DIR)


def test_the_watcher_loads_nothing_of_what_the_start_needed() -> None:
    script = f"import json, sys, lightcone_site.serve.watch; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


ASKER = """
import json, sys, time
print(json.dumps(["loading", "loading weights 5%"]), flush=True)
print(json.dumps(["failed", sys.argv[1]]), flush=True)
if sys.argv[1] != "short": time.sleep(60)
"""


@pytest.mark.parametrize("model", ["tiny", "short"])
def test_the_last_news_of_the_model_counts_and_an_asker_that_ends_is_started_again(
    tmp_path: Path, monkeypatch, model: str
) -> None:
    (tmp_path / "asker.py").write_text(ASKER)
    monkeypatch.setattr("lightcone_site.serve.status_poller.ASKER", "asker")
    monkeypatch.setattr("lightcone_site.serve.status_poller.ROOT", tmp_path)
    status = StatusPoller(model)
    try:
        for _ in range(2):
            deadline = time.monotonic() + 60
            while status.latest() != ModelStatus("failed", model):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            status.close()
    finally:
        status.close()


def test_where_no_process_can_be_started_nothing_is_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("lightcone_site.serve.status_poller.ROOT", tmp_path / "missing")
    status = StatusPoller("tiny")
    assert status.latest() is None
    status.close()
