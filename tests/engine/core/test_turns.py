"""Busy cores share the processors equally, and a core that leaves or dies gives its share back."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import ModelLoadError
from engine.core.turns import ROTATION_S, Turns, share_of
from engine.sampling.sampler import Sampler
from tests.engine.core.test_loop import VOCAB_SIZE, Stage
from tests.engine.in_process import make_core

ROOT = Path(__file__).resolve().parents[3]
BUSY_FOR_EVER = """
import sys, threading
from pathlib import Path
from engine.core.turns import Turns
turns = Turns(Path(sys.argv[1]), 4, lambda num_threads: None)
turns.begin()
print("busy", flush=True)
threading.Event().wait()
"""


class Core:
    """The turns of a core, and the threads that it may use."""

    def __init__(self, path, num_threads=4, clock=lambda: 0.0):
        self.num_threads = num_threads
        self.limits = []
        self.turns = Turns(path, num_threads, self._limit, clock)

    def _limit(self, num_threads):
        self.num_threads = num_threads
        self.limits.append(num_threads)

    def begin(self):
        self.turns.begin()
        return self.num_threads


@pytest.fixture
def path(tmp_path):
    return tmp_path / "turns"


@pytest.fixture
def cores(path):
    cores = [Core(path) for _ in range(3)]
    yield cores
    for core in cores:
        core.turns.close()


def test_a_core_alone_keeps_all_threads_and_is_told_nothing(cores):
    assert [cores[0].begin() for _ in range(3)] == [4, 4, 4]
    cores[0].turns.leave()
    assert cores[0].begin() == 4
    assert cores[0].limits == []


def test_two_busy_cores_have_half_of_the_threads_each(cores):
    assert cores[0].begin() == 4
    assert cores[1].begin() == 2
    assert cores[0].begin() == 2


def test_a_core_that_leaves_gives_its_share_back_at_the_next_turn(cores):
    for core in cores[:2]:
        core.begin()
    cores[0].turns.leave()
    assert cores[1].begin() == 4


def test_a_core_whose_file_is_closed_gives_its_share_back(cores):
    for core in cores[:2]:
        core.begin()
    cores[0].turns.close()
    assert cores[1].begin() == 4


def test_an_idle_core_costs_the_others_nothing(cores):
    cores[2].begin()
    cores[2].turns.leave()
    assert cores[0].begin() == 4


def test_a_killed_core_gives_its_share_back(path):
    core = Core(path)
    child = subprocess.Popen([sys.executable, "-c", BUSY_FOR_EVER, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"busy\n"
        assert core.begin() == 2
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert core.begin() == 4
    core.turns.close()


def test_a_core_of_one_thread_counts_as_busy(path):
    small, other = Core(path, 1), Core(path, 1)
    assert [small.begin(), other.begin(), small.begin()] == [1, 1, 1]
    small.turns.close()
    other.turns.close()


def test_threads_that_are_left_over_go_to_each_core_in_turn(path):
    now = 0.0
    cores = [Core(path, 4, clock=lambda: now) for _ in range(3)]
    for core in cores:
        core.begin()
    given = []
    for number in range(6):
        now = (number + 0.5) * ROTATION_S
        given.append([core.begin() for core in cores])
    assert [sorted(shares) for shares in given] == [[1, 1, 2]] * 6
    assert [sum(shares) for shares in zip(*given, strict=True)] == [8, 8, 8]
    for core in cores:
        core.turns.close()


@given(st.integers(1, 70), st.integers(1, 80), st.integers(0, 1000))
def test_shares_fill_the_processors_and_are_equal_over_a_cycle(num_threads, num_busy, first):
    rounds = [
        [share_of(num_threads, num_busy, rank, first + number) for rank in range(num_busy)]
        for number in range(num_busy)
    ]
    for shares in rounds:
        assert min(shares) >= 1
        assert max(shares) - min(shares) <= 1
        assert sum(shares) == max(num_threads, num_busy)
    assert len({sum(shares) for shares in zip(*rounds, strict=True)}) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(("begin", "begin", "leave", "close"))), max_size=40))
def test_a_core_finds_as_many_busy_ones_as_there_are(tmp_path_factory, acts):
    path = tmp_path_factory.mktemp("turns") / "file"
    cores = [Core(path, 60) for _ in range(6)]
    busy = set()
    for number, act in acts:
        if act == "begin":
            busy.add(number)
            assert cores[number].begin() == 60 // len(busy)
            continue
        busy.discard(number)
        if act == "leave":
            cores[number].turns.leave()
        else:
            cores[number].turns.close()
            cores[number] = Core(path, 60)
    for core in cores:
        core.turns.close()


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="turns_file .*folder"):
        Core(tmp_path / "missing" / "turns")


def test_a_folder_without_locks_is_refused_before_a_model_is_loaded(path, monkeypatch):
    def without_locks(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("engine.core.turns.fcntl.fcntl", without_locks)
    with pytest.raises(ModelLoadError, match="turns_file .*No locks available.*local folder"):
        Core(path)


def test_the_step_loop_is_busy_while_it_has_something_to_compute(path):
    stage, other = Stage(), Core(path)
    own = Core(path)
    stage.core = make_core(
        stage.scheduler, stage.runner, Sampler(VOCAB_SIZE, "cpu"), stage.channel, turns=own.turns, clock=lambda: 50.0
    )
    stage.add(1, [1, 2, 3], max_tokens=2)
    assert stage.core._turn(stage.channel.receive(block=False))
    assert other.begin() == 2
    assert stage.core._turn([])
    assert own.num_threads == 2
    assert stage.core._turn([])
    assert other.begin() == 4
    own.turns.close()
    other.turns.close()
