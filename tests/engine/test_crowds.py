"""Sharing and order among concurrent requests, through submit() on a small model."""

import threading

import pytest

from engine.api import Delta, SamplingParams, StopRules
from engine.core.loop import EngineCore
from tests.engine.real_engine import RealEngine, tokens_of, write_model

LONG = "a rather long prompt that takes several blocks of the cache " * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    write_model(folder)
    return folder


@pytest.fixture
def make_engine(folder):
    engines = []

    def make(**config):
        engines.append(RealEngine(folder, **config))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_the_choices_of_a_run_compute_their_prompt_about_once(make_engine, prefix_caching):
    engine = make_engine(prefix_caching=prefix_caching)
    payloads = engine.answer(
        text=LONG, num_choices=8, sampling=SamplingParams(seed=1), stop=StopRules(max_tokens=4, ignore_eos=True)
    )
    stats, num_prompt = engine.core_stats(), payloads[0].num_prompt_tokens
    assert stats.num_prompt_tokens - stats.num_cached_tokens < num_prompt + 8 * 16
    assert payloads[-1].usage.prompt_tokens == num_prompt
    assert payloads[-1].usage.cached_tokens == 0
    again = engine.answer(
        text=LONG, num_choices=1, sampling=SamplingParams(seed=1), stop=StopRules(max_tokens=4, ignore_eos=True)
    )
    assert (again[-1].usage.cached_tokens > 0) == prefix_caching
    assert tokens_of(again) == tokens_of(payloads)


class Crowd:
    """An engine with one running place, whose core takes as many steps as `let_step` allows.

    `seen`: (run_id, event) of all runs.
    """

    def __init__(self, engine, monkeypatch):
        self.engine = engine
        self.seen = []
        self._steps = threading.Semaphore(0)
        step, publish = EngineCore.step, engine.engine._runs.publish
        monkeypatch.setattr(EngineCore, "step", lambda core: self._steps.acquire(timeout=60) and step(core))
        engine.engine._runs.publish = lambda publication: (
            self.seen.extend((run.run_id, event) for run in publication for event in run.events),
            publish(publication),
        )

    def let_step(self, times=1_000_000):
        self._steps.release(times)

    def wait_for_words(self):
        while not any(isinstance(event.payload, Delta) for _, event in self.seen):
            self.engine.publication()

    def submit(self, run_id, **changes):
        asked = {
            "text": run_id,
            "sampling": SamplingParams(seed=1),
            "stop": StopRules(max_tokens=2, ignore_eos=True),
        } | changes
        self.engine.submit(run_id, **asked)

    def serve(self, **wanted):
        """Submit in this order before the first step; return the order of their first tokens."""
        self.submit("first", priority=-9)
        for run_id, changes in wanted.items():
            self.submit(run_id, **changes)
        self.let_step()
        self.engine.events_to_end("first", *wanted)
        speakers = dict.fromkeys(run_id for run_id, event in self.seen if isinstance(event.payload, Delta))
        return [run_id for run_id in speakers if run_id in wanted]


@pytest.fixture
def crowd(make_engine, monkeypatch):
    return Crowd(make_engine(max_num_seqs=1), monkeypatch)


def test_lower_priorities_are_served_first_and_ties_by_arrival(crowd):
    order = crowd.serve(later={"priority": 5}, usual={}, also={}, urgent={"priority": -5})
    assert order == ["urgent", "usual", "also", "later"]


def test_an_urgent_request_preempts_one_of_lower_priority(crowd):
    long = StopRules(max_tokens=300, ignore_eos=True)
    crowd.submit("flex", priority=5, stop=long)
    crowd.let_step(9)
    crowd.wait_for_words()
    crowd.submit("urgent", priority=-5)
    crowd.let_step()
    crowd.engine.events_to_end("flex", "urgent")
    assert [run_id for run_id, event in crowd.seen if event.is_terminal] == ["urgent", "flex"]
    assert crowd.engine.core_stats().num_preemptions == 1
    alone = crowd.engine.answer(text="flex", sampling=SamplingParams(seed=1), stop=long)
    assert tokens_of([event.payload for run_id, event in crowd.seen if run_id == "flex"]) == tokens_of(alone)


def test_requests_with_one_cache_key_are_served_together_with_unchanged_answers(crowd):
    wanted = {"one": {"group": "key"}, "two": {}, "three": {"group": "key"}, "other": {"group": "key", "tenant": "x"}}
    assert crowd.serve(**wanted) == ["one", "three", "two", "other"]
    asked = {"sampling": SamplingParams(seed=1), "stop": StopRules(max_tokens=2, ignore_eos=True)}
    assert crowd.engine.answer(**asked)[:-1] == crowd.engine.answer(**asked, group="key")[:-1]
