"""Replacement of dead cores: how many, how soon, and a close that ends the wait."""

import pytest

from engine.config import EngineConfig
from engine.core.supervisor import MAX_RESTARTS, RESTART_WINDOW_S, CoreRestarter
from engine.messages import CoreFailed
from tests.engine.scripted_core import READY, ScriptedCore


class Stage:
    """A restarter with scripted cores on a fixed clock; `delays` are its requested waits."""

    def __init__(self, *cores):
        self.now = 0.0
        self.delays = []
        waiting = iter(cores)
        self.starter = CoreRestarter(EngineConfig("m", "m"), lambda _: self.next_of(waiting), lambda: self.now)
        self.starter._closing.wait = self.wait

    def next_of(self, cores):
        core = next(cores)
        if isinstance(core, OSError):
            raise core
        return core

    def wait(self, delay_s):
        self.delays.append(delay_s)
        return self.starter.is_closing


def test_a_core_that_fails_to_start_is_replaced_after_a_delay():
    good = ScriptedCore(READY)
    stage = Stage(OSError("no memory"), ScriptedCore(CoreFailed("broken", "detail")), good)
    link, limits = stage.starter.replace()
    assert (link, limits.max_model_len) == (good, READY.max_model_len)
    assert stage.delays == [0.0, 1.0, 2.0]
    assert stage.starter.num_restarts == 3


def test_only_deaths_within_the_window_count_towards_the_limit():
    stage = Stage(*(ScriptedCore(READY) for _ in range(MAX_RESTARTS + 1)))
    for _ in range(MAX_RESTARTS):
        assert stage.starter.replace()
    assert stage.starter.replace() is None
    stage.now = RESTART_WINDOW_S + 1
    assert stage.starter.replace()
    assert stage.delays[-1] == 0.0


@pytest.mark.parametrize("times", [1, 2])
def test_a_closed_restarter_starts_nothing(times):
    stage = Stage()
    for _ in range(times):
        stage.starter.close()
    assert stage.starter.replace() is None


def test_a_core_that_was_started_early_is_the_first():
    early, later = ScriptedCore(READY), ScriptedCore(READY)
    starter = CoreRestarter(EngineConfig("m", "m"), lambda _: later, lambda: 0.0, started=early)
    assert [starter.connect(), starter.connect()] == [early, later]
