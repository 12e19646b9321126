"""The main loop with scripted children and a clock that the test moves."""

import io
import os
import signal
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.console import Console
from lightcone_site.serve.supervisor import Interrupted, SignalInbox, Supervisor


@pytest.fixture
def inbox():
    with SignalInbox().installed() as installed:
        yield installed


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


def spec(folder: Path, name: str, script: str, stop_s: float = 10.0) -> ChildSpec:
    return ChildSpec(
        name, ("/bin/sh", "-c", script), folder, folder / f"{name}.log", {"PATH": os.environ["PATH"]}, stop_s=stop_s
    )


def stop_when(is_true):
    """A turn that ends `run` as an operator does: with a signal to this process."""

    def turn() -> None:
        if is_true():
            os.kill(os.getpid(), signal.SIGTERM)

    return turn


def test_a_dead_child_is_reported_and_restarted(tmp_path, inbox, output):
    supervisor = Supervisor(Console(output), inbox, count(0.5, 0.5).__next__)
    supervisor.add(spec(tmp_path, "part", "echo start >> starts; echo broken; exit 7"))
    starts = tmp_path / "starts"
    supervisor.run(stop_when(lambda: starts.exists() and starts.read_text().count("start") >= 3))
    supervisor.stop(("part",))
    said = output.getvalue()
    assert "exit code 7; starting again in 1 s" in said
    assert "exit code 7; starting again in 2 s" in said
    assert said.count("broken") == 1, "the same last log lines are shown once"


def test_a_failed_start_is_retried_while_others_keep_running(tmp_path, inbox, output):
    supervisor = Supervisor(Console(output), inbox, count(0.5, 0.5).__next__)
    folder = tmp_path / "folder"
    folder.mkdir()
    part = ChildSpec(
        "part", ("/bin/sh", "-c", "rm -r ../folder"), folder, tmp_path / "part.log", {"PATH": os.environ["PATH"]}
    )
    other = supervisor.add(spec(tmp_path, "other", "while :; do sleep 0.02; done"))
    supervisor.add(part)
    supervisor.run(stop_when(lambda: "part         !!!  cannot be started" in output.getvalue()))
    assert other.is_running
    folder.mkdir()
    supervisor.run(stop_when(lambda: output.getvalue().count("exit code 0") == 2))
    assert "trying again in 2 s" in output.getvalue()
    supervisor.stop(())


def test_children_are_stopped_one_after_the_other_in_the_given_order(tmp_path, inbox, output):
    supervisor = Supervisor(Console(output), inbox)
    for name in ("valkey", "web", "model"):
        supervisor.add(
            spec(
                tmp_path,
                name,
                f"trap 'echo {name} >> stopped; exit 0' TERM; echo up > {name}.up; while :; do sleep 0.02; done",
            )
        )
    assert supervisor.wait_for(
        lambda: all((tmp_path / f"{name}.up").exists() for name in ("valkey", "web", "model")), timeout_s=10
    )
    supervisor.stop(("model", "web", "valkey"))
    assert (tmp_path / "stopped").read_text().split() == ["model", "web", "valkey"]


def test_a_child_that_does_not_stop_in_time_is_killed(tmp_path, inbox, output):
    supervisor = Supervisor(Console(output), inbox)
    child = supervisor.add(
        spec(tmp_path, "deaf", "trap '' TERM; echo up > up; while :; do sleep 0.02; done", stop_s=0.3)
    )
    assert supervisor.wait_for((tmp_path / "up").exists, timeout_s=10)
    supervisor.stop(("deaf",))
    assert not child.is_running
    assert "did not stop within" in output.getvalue()


def test_a_second_signal_ends_everything_at_once(tmp_path, inbox, output):
    supervisor = Supervisor(Console(output), inbox)
    child = supervisor.add(
        spec(tmp_path, "slow", "trap '' TERM; echo up > up; while :; do sleep 0.02; done", stop_s=60)
    )
    assert supervisor.wait_for((tmp_path / "up").exists, timeout_s=10)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    supervisor.stop(("slow",))
    assert time.monotonic() - begun < 10
    assert not child.is_running
    assert "asked twice" in output.getvalue()


def test_a_signal_interrupts_a_wait(inbox, output):
    supervisor = Supervisor(Console(output), inbox)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        supervisor.wait_for(lambda: False, timeout_s=10)


def test_check_raises_after_a_signal(inbox, output):
    supervisor = Supervisor(Console(output), inbox)
    supervisor.check()
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        supervisor.check()


def test_a_wait_ends_at_its_time_out(inbox, output):
    assert Supervisor(Console(output), inbox).wait_for(lambda: False, timeout_s=0.05) is False


def test_an_ignored_sighup_stays_ignored():
    """As `nohup` asks."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalInbox().installed() as inbox:
            os.kill(os.getpid(), signal.SIGHUP)
            assert inbox.wait(0) == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with SignalInbox().installed():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
