"""The queue of an encoder: whole prompts, in turn, within a budget of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import EngineUnavailable, LogprobOptions, RequestError, SamplingParams, StopRules
from engine.messages import AddSequence
from engine.scheduling.whole_prompts import WholePrompts
from engine.sequence import Sequence


def prompt(seq_id, length, tenant="", priority=0):
    options = SamplingParams(seed=0), StopRules(), LogprobOptions()
    ids = [1] * length
    return Sequence(AddSequence(seq_id, ids, [], *options, [], 1, cache_root=b"", priority=priority, tenant=tenant))


def planned(queue):
    return [sequence.seq_id for sequence in queue.plan()]


def test_a_step_takes_prompts_in_order_while_they_fit_and_at_least_one():
    queue = WholePrompts(10, 3, 100)
    for seq_id, length in enumerate([25, 4, 4, 4, 1, 1, 1, 1]):
        queue.add(prompt(seq_id, length))
    assert [planned(queue) for _ in range(5)] == [[0], [1, 2], [3, 4, 5], [6, 7], []]
    assert queue.stats().num_prompt_tokens == 41


def test_a_better_priority_goes_first():
    queue = WholePrompts(10, 8, 100)
    queue.add(prompt(1, 8))
    queue.add(prompt(2, 8, priority=-1))
    assert [planned(queue), planned(queue)] == [[2], [1]]


def test_a_tenant_with_many_prompts_leaves_others_their_turn():
    queue = WholePrompts(10, 8, 1000)
    for seq_id in range(50):
        queue.add(prompt(seq_id, 10, "many"))
    for _ in range(5):
        planned(queue)
    queue.add(prompt(100, 10, "one"))
    queue.add(prompt(101, 10, "one"))
    steps = [planned(queue)[0] for _ in range(4)]
    assert {100, 101} <= set(steps)
    assert steps.count(100) == steps.count(101) == 1


def test_an_aborted_prompt_is_not_computed():
    queue = WholePrompts(10, 8, 100)
    queue.add(prompt(1, 3))
    queue.add(prompt(2, 3))
    assert queue.abort(1).seq_id == 1
    assert queue.abort(1) is None
    assert planned(queue) == [2]


def test_empty_prompts_and_those_beyond_the_queue_are_refused():
    queue = WholePrompts(10, 2, 1)
    with pytest.raises(RequestError):
        queue.add(prompt(0, 0))
    for seq_id in range(3):
        queue.add(prompt(seq_id, 1))
    with pytest.raises(EngineUnavailable):
        queue.add(prompt(3, 1))


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("abc"), st.sampled_from(["add", "plan", "abort"]))))
def test_every_prompt_is_computed_once_or_aborted(moves):
    queue, waiting, done = WholePrompts(20, 4, 1000), [], []
    for seq_id, (length, tenant, move) in enumerate(moves):
        if move == "add":
            queue.add(prompt(seq_id, length, tenant))
            waiting.append(seq_id)
        elif move == "abort" and waiting:
            assert queue.abort(waiting[length % len(waiting)]) is not None
            del waiting[length % len(waiting)]
        else:
            step = planned(queue)
            assert bool(step) == bool(waiting)
            done += step
            waiting = [one for one in waiting if one not in step]
        assert queue.check_integrity() == ""
    assert len(done) == len(set(done))
