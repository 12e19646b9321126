"""A whole engine with a spill file gives the tokens of one that gives no block away, and computes less."""

from __future__ import annotations

import random

import pytest

from engine.api import Outcome, SamplingParams, StopRules
from engine.scheduling import spilled_blocks
from tests.engine.real_engine import RealEngine, tokens_of, write_model

BLOCK_BYTES = 1 << 12
"""Of the small model in float32."""
NUM_BLOCKS = 20
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder)
    return folder


@pytest.fixture
def make_engine(folder, tmp_path):
    engines = []

    def make(num_places=200, **config):
        settings = {"kv_cache_bytes": NUM_BLOCKS * BLOCK_BYTES, "max_model_len": 300}
        spill = {"kv_spill_bytes": num_places * BLOCK_BYTES, "kv_spill_folder": tmp_path}
        engines.append(RealEngine(folder, **settings | spill | config))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def words(choice, count):
    return "".join(choice.choices("abcdefghijklmnopqrstuvwxyz ", k=count))


@pytest.mark.parametrize(("seed", "num_places"), [(1, 200), (2, 200), (3, 12)])
def test_tokens_are_those_of_an_engine_that_gives_no_block_away(make_engine, monkeypatch, seed, num_places):
    """Of chats of two tenants that go on from common beginnings, some at a time, in a cache of one of them."""
    monkeypatch.setattr(spilled_blocks, "RESTORED_BYTES", 3 * BLOCK_BYTES)
    choice = random.Random(seed)
    spilling, large = make_engine(num_places), make_engine(0, kv_cache_bytes=1 << 22, prefix_caching=False)
    trunks = [words(choice, 200) for _ in range(3)]
    num_cached = 0
    for number in range(12):
        asked = {
            f"{number} {place}": {
                "text": choice.choice(trunks)[: choice.randint(100, 200)] + words(choice, choice.randint(0, 20)),
                "tenant": choice.choice(["one", "two"]),
                "sampling": GREEDY,
                "stop": StopRules(max_tokens=choice.randint(1, 20), ignore_eos=True),
            }
            for place in range(choice.randint(1, 3))
        }
        for run_id, options in asked.items():
            spilling.submit(run_id, **options)
            large.submit(run_id, **options)
        found, expected = spilling.events_to_end(*asked), large.events_to_end(*asked)
        for run_id in asked:
            payloads, wanted = ([event.payload for event in events[run_id]] for events in (found, expected))
            assert tokens_of(payloads) == tokens_of(wanted) != []
            num_cached += payloads[-1].usage.cached_tokens
        assert spilling.core_stats().integrity == ""
    stats = spilling.core_stats()
    assert stats.num_restored_blocks > 0
    assert stats.num_cached_tokens == num_cached
    assert (stats.num_lost_blocks > 0) == (num_places == 12)


def test_restored_tokens_are_reported_as_cached_and_the_bytes_are_those_computed(make_engine):
    engine = make_engine()
    choice = random.Random(0)
    text, other = words(choice, 200), words(choice, 280)
    stop = StopRules(max_tokens=4, ignore_eos=True)
    first = engine.answer(text, sampling=GREEDY, stop=stop)
    engine.answer(other, sampling=GREEDY, stop=stop)
    before = engine.core_stats()
    again = engine.answer(text, sampling=GREEDY, stop=stop)
    after = engine.core_stats()
    assert before.num_restored_blocks == 0
    assert after.num_restored_blocks > 8
    assert again[-1].usage.cached_tokens == (again[0].num_prompt_tokens - 1) // 16 * 16
    assert tokens_of(again) == tokens_of(first)


def test_another_tenant_or_salt_restores_nothing(make_engine):
    engine = make_engine()
    choice = random.Random(0)
    text, other = words(choice, 200), words(choice, 280)
    engine.answer(text, tenant="one")
    engine.answer(other, tenant="one")
    for changes in ({"tenant": "two"}, {"tenant": "one", "cache_salt": "salt"}):
        payloads = engine.answer(text, **changes)
        assert payloads[-1].usage.cached_tokens == 0
    assert engine.core_stats().num_restored_blocks == 0


def test_runs_that_are_stopped_while_they_are_restored_leave_nothing(make_engine, monkeypatch):
    monkeypatch.setattr(spilled_blocks, "RESTORED_BYTES", BLOCK_BYTES)
    engine = make_engine()
    choice = random.Random(0)
    texts = [words(choice, 200) for _ in range(4)]
    for text in texts:
        engine.answer(text, stop=StopRules(max_tokens=2))
    for number, text in enumerate(texts * 5):
        engine.submit(f"run {number}", text, stop=StopRules(max_tokens=50, ignore_eos=True))
        engine.engine.abort(f"run {number}", Outcome.STOPPED)
        engine.events_to_end(f"run {number}")
    stats = engine.core_stats()
    assert stats.integrity == ""
    assert stats.num_free_blocks == stats.num_blocks
