"""A supervised process: restarts, groups, last log lines. The children are one-line shell scripts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightcone_site.serve.child import Child, ChildSpec, describe_exit, trim_log


def spec(tmp_path: Path, script: str, **options) -> ChildSpec:
    environment = {"PATH": os.environ["PATH"]}
    return ChildSpec(
        "part", ("/bin/sh", "-c", script), tmp_path, tmp_path / "logs" / "part.log", environment=environment, **options
    )


def reaped(child: Child, now: float) -> int:
    deadline = time.monotonic() + 10
    while (code := child.reap(now)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return code


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(is_true) -> None:
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_pause_before_a_restart_doubles_up_to_thirty_seconds(tmp_path):
    child = Child(spec(tmp_path, "exit 3"))
    pauses = []
    for now in range(7):
        child.start(float(now))
        assert reaped(child, float(now)) == 3
        pauses.append(child.restart_at - now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_long_run_resets_the_back_off(tmp_path):
    child = Child(spec(tmp_path, "exit 3"))
    for now in (0.0, 1.0):
        child.start(now)
        reaped(child, now)
    child.start(10.0)
    reaped(child, 100.0)
    assert child.restart_at == 101.0


def test_the_children_of_a_dead_child_are_killed(tmp_path):
    child = Child(spec(tmp_path, "sleep 600 & echo $! > grandchild; exit 1"))
    child.start(0.0)
    reaped(child, 0.0)
    wait_for(lambda: not is_alive(int((tmp_path / "grandchild").read_text())))


def test_kill_ends_the_whole_group(tmp_path):
    child = Child(spec(tmp_path, "sleep 600 & echo $! > grandchild; wait"))
    child.start(0.0)
    wait_for(lambda: (tmp_path / "grandchild").exists() and (tmp_path / "grandchild").read_text().strip())
    child.kill()
    assert not child.is_running
    wait_for(lambda: not is_alive(int((tmp_path / "grandchild").read_text())))


def test_last_log_lines_are_of_the_latest_start_and_show_no_key(tmp_path):
    first = Child(spec(tmp_path, "echo before"))
    first.start(0.0)
    reaped(first, 0.0)
    child = Child(spec(tmp_path, f"echo one; echo; echo key lc_accept0001_{'0' * 48}; exit 1"))
    child.start(0.0)
    reaped(child, 0.0)
    assert child.last_log_lines() == ["one", "key lc_accept0001_***"]


def test_a_large_log_is_copied_once_and_emptied(tmp_path, monkeypatch):
    monkeypatch.setattr("lightcone_site.serve.child.MAX_LOG_BYTES", 10)
    log = tmp_path / "part.log"
    log.write_text("x" * 11)
    trim_log(log)
    assert log.read_text() == ""
    assert log.with_name("part.log.1").read_text() == "x" * 11


def test_a_large_log_without_room_for_a_copy_grows_further(tmp_path, monkeypatch):
    monkeypatch.setattr("lightcone_site.serve.child.MAX_LOG_BYTES", 10)
    log = tmp_path / "part.log"
    log.write_text("x" * 11)
    log.with_name("part.log.1").mkdir()
    trim_log(log)
    assert log.read_text() == "x" * 11


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exit code 0"), (2, "exit code 2"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")]
)
def test_exit_codes_are_described(code, words):
    assert describe_exit(code) == words


def test_a_child_dies_with_its_supervisor(tmp_path):
    """The supervisor is a Python process killed with SIGKILL, which cannot clean up."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom lightcone_site.serve.child import Child, ChildSpec\nchild = "
        f"Child(ChildSpec('part', ('/bin/sleep', '600'), Path({str(tmp_path)!r}), Path({str(tmp_path)!r}) / 'log'))\n"
        "child.start(0.0)\nprint(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))
