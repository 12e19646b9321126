"""A plan in flight while others are made: larger steps of prompts, and what keeps away from their sequences."""

from engine.scheduling.scheduler import Scheduler
from engine.sequence import SequenceStatus
from tests.engine.scheduling.sequences import OracleDrafter, make_sequence, run, sample, step


def make_scheduler(num_blocks=64, **changes):
    options = {"max_num_batched_tokens": 16, "max_num_seqs": 8, "cut_step_tokens": 64} | changes
    return Scheduler(num_blocks, 4, max_waiting=100, prefix_caching=True, clock=lambda: 0.0, **options)


def sizes(plan):
    return {chunk.sequence.seq_id: chunk.num_tokens for chunk in plan.chunks}


def test_a_prompt_alone_gets_the_tokens_of_a_cut_step():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(100))))
    assert sizes(step(scheduler)[0]) == {1: 64}
    assert sizes(step(scheduler)[0]) == {1: 36}


def test_a_prompt_that_ends_does_not_wait_for_one_that_goes_on():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(100))))
    scheduler.add(make_sequence(2, [1] * 6))
    assert sizes(scheduler.plan()) == {1: 10, 2: 6}


def test_nobody_who_decodes_waits_for_a_cut_step():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(2, [1] * 6, max_tokens=50))
    step(scheduler)
    scheduler.add(make_sequence(1, list(range(100))))
    assert sizes(scheduler.plan()) == {2: 1, 1: 15}


def test_prompts_beside_decodes_get_what_these_may_wait_for():
    scheduler = make_scheduler(max_num_batched_tokens=64, mixed_step_tokens=32)
    scheduler.add(make_sequence(1, [1] * 6, max_tokens=50))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(200))))
    assert sizes(scheduler.plan()) == {1: 1, 2: 31}
    scheduler.resize(64, 64, 64, 2)
    assert sizes(scheduler.plan()) == {1: 1, 2: 16}, "prompts always go on"
    scheduler.abort(1)
    assert sizes(scheduler.plan()) == {2: 64}, "nobody waits"


def test_a_long_prompt_beside_decodes_leaves_half_of_its_part_to_short_ones():
    scheduler = make_scheduler(max_num_batched_tokens=64, mixed_step_tokens=33)
    scheduler.add(make_sequence(1, [1] * 6, max_tokens=50))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(200))))
    scheduler.add(make_sequence(3, [2] * 20))
    assert sizes(scheduler.plan()) == {1: 1, 2: 16, 3: 16}


def test_drafts_take_the_place_of_prompts_beside_decodes():
    scheduler = make_scheduler(
        max_num_batched_tokens=64, mixed_step_tokens=32, drafter=OracleDrafter(8, lambda _: False)
    )
    scheduler.add(make_sequence(1, [1] * 6, max_tokens=50))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(200))))
    plan = scheduler.plan()
    assert [chunk.num_positions for chunk in plan.chunks] == [9, 23]


def test_prompts_share_a_cut_step_as_they_share_an_ordinary_one():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(100)), tenant="a"))
    scheduler.add(make_sequence(2, list(range(200, 300)), tenant="b"))
    in_flight = scheduler.plan()
    assert sizes(in_flight) == {1: 48, 2: 16}
    scheduler.advance(in_flight, {})
    scheduler.resize(16, 16, 0)
    assert sizes(scheduler.plan()) == {1: 12, 2: 4}


def test_a_budget_of_cut_steps_that_shrinks_leaves_steps_as_they_were():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(100))))
    scheduler.resize(16, 24, 0)
    assert sizes(scheduler.plan()) == {1: 24}


def test_a_plan_in_flight_is_in_no_other_and_ends_as_any():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(20)), max_tokens=1))
    scheduler.resize(16, 16, 20)
    in_flight = scheduler.plan()
    scheduler.hold(in_flight)
    assert scheduler.plan() is None
    scheduler.add(make_sequence(2, [1] * 40, max_tokens=2))
    plan, _ = step(scheduler)
    assert sizes(plan) == {2: 16}, "no cut step beside another"
    finished = scheduler.advance(in_flight, sample(in_flight))
    assert [sequence.seq_id for sequence, _ in finished] == [1]
    run(scheduler)


def test_an_aborted_sequence_keeps_its_blocks_until_the_flight_ends():
    scheduler = make_scheduler(num_blocks=8)
    scheduler.add(make_sequence(1, list(range(16))))
    plan = scheduler.plan()
    scheduler.hold(plan)
    scheduler.abort(1)
    assert (scheduler.check_integrity(), scheduler.stats().num_free_blocks) == ("", 4)
    scheduler.advance(plan, {})
    assert (scheduler.check_integrity(), scheduler.stats().num_free_blocks) == ("", 8)


def test_a_sequence_in_flight_is_not_preempted_for_blocks_of_another():
    """The other one is preempted itself, although it is more urgent, and preempts it when the flight has ended."""
    scheduler = make_scheduler(num_blocks=8)
    in_flight_one = make_sequence(1, list(range(19)), max_tokens=9, priority=5, stop_ids=[])
    scheduler.add(in_flight_one)
    in_flight = scheduler.plan()
    scheduler.hold(in_flight)
    urgent = make_sequence(2, [5] * 5, max_tokens=20, priority=0, stop_ids=[])
    scheduler.add(urgent)
    while step(scheduler)[0] is not None:
        assert in_flight_one.status is SequenceStatus.RUNNING
    assert urgent.status is SequenceStatus.PREEMPTED
    scheduler.advance(in_flight, sample(in_flight))
    assert sizes(scheduler.plan()).keys() == {2}
    assert in_flight_one.status is SequenceStatus.PREEMPTED


def test_a_sequence_in_flight_is_not_preempted_for_a_more_urgent_one():
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_sequence(1, list(range(20)), priority=5))
    in_flight = scheduler.plan()
    scheduler.hold(in_flight)
    scheduler.add(make_sequence(2, [1] * 6, priority=0))
    assert scheduler.plan() is None
    scheduler.advance(in_flight, sample(in_flight))
    assert sizes(scheduler.plan()) == {2: 6}


def test_a_prompt_that_the_flight_begins_too_waits_for_its_blocks():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(40))))
    in_flight = scheduler.plan()
    scheduler.hold(in_flight)
    second = make_sequence(2, list(range(40)))
    scheduler.add(second)
    assert scheduler.plan() is None
    scheduler.advance(in_flight, sample(in_flight))
    scheduler.plan()
    assert second.num_cached == 36
