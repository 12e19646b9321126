"""Tenants share running sequences, blocks and steps: a tenant below an equal share is served first."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import EngineUnavailable
from engine.attention.cache_groups import CacheGroups
from engine.scheduling.blocks import BlockTables
from engine.scheduling.fair_share import FAIR_WAIT_S, FairShare
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting import WaitingQueue
from engine.sequence import Sequence, SequenceStatus
from tests.engine.scheduling.sequences import make_scheduler, make_sequence, run, solo_output, step
from tests.examples import examples


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def crowd(scheduler, tenant, count, *, first=1, num_prompt=2, max_tokens=60, **fields):
    """Add sequences of a tenant that share no tokens and never stop early."""
    made = [
        make_sequence(
            first + i,
            [100 * (first + i) + j for j in range(num_prompt)],
            max_tokens,
            min_tokens=max_tokens,
            tenant=tenant,
            cache_root=tenant.encode(),
            **fields,
        )
        for i in range(count)
    ]
    for sequence in made:
        scheduler.add(sequence)
    return made


def num_running(*sequences):
    return sum(sequence.status is SequenceStatus.RUNNING for sequence in sequences)


def test_a_waiting_tenant_with_nothing_running_preempts_a_tenant_that_runs_all_sequences():
    """128 choices of one request delayed another project's first token by 45 s."""
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=4, clock=clock)
    greedy = crowd(scheduler, "greedy", 20)
    expected = [solo_output(sequence) for sequence in greedy]
    step(scheduler)
    (witness,) = crowd(scheduler, "witness", 1, first=50, max_tokens=3)
    clock.now += FAIR_WAIT_S / 2
    step(scheduler)
    assert (num_running(witness), num_running(*greedy)) == (0, 4)
    clock.now += FAIR_WAIT_S / 2
    step(scheduler)
    assert (num_running(witness), len(witness.output_ids), num_running(*greedy)) == (1, 1, 3)
    assert greedy[3].status is SequenceStatus.PREEMPTED, "the newest makes room"
    run(scheduler)
    assert [sequence.output_ids for sequence in greedy] == expected


def test_all_tenants_with_nothing_running_start_in_the_same_step():
    """Each step made room for one, so that the tenth project waited ten steps longer."""
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=8, clock=clock)
    greedy = crowd(scheduler, "greedy", 20)
    step(scheduler)
    witnesses = [crowd(scheduler, f"witness {number}", 2, first=50 + 10 * number) for number in range(3)]
    clock.now += FAIR_WAIT_S
    step(scheduler)
    assert [num_running(*own) for own in (greedy, *witnesses)] == [5, 1, 1, 1]
    step(scheduler)
    assert [num_running(*own) for own in (greedy, *witnesses)] == [4, 2, 1, 1], (
        "what they have beyond that comes one by one"
    )


def test_free_capacity_goes_to_the_tenant_with_the_smallest_share():
    scheduler = make_scheduler(max_num_seqs=4)
    greedy = crowd(scheduler, "greedy", 8, max_tokens=4)
    step(scheduler)
    witnesses = crowd(scheduler, "witness", 3, first=50)
    scheduler.abort(greedy[0].seq_id)
    step(scheduler)
    assert num_running(*witnesses) == 1
    for _ in range(4):
        step(scheduler)
    assert (num_running(*witnesses), num_running(*greedy)) == (2, 2), (
        "an equal share of the running sequences each, though the other came first"
    )


def test_preemption_raises_a_tenant_to_its_share_and_leaves_others_theirs():
    clock = Clock()
    scheduler = make_scheduler(num_blocks=999, max_num_seqs=6, clock=clock)
    greedy, witnesses = crowd(scheduler, "greedy", 9, max_tokens=200), []
    step(scheduler)
    witnesses += crowd(scheduler, "witness", 9, first=50, max_tokens=200)
    for _ in range(60):
        clock.now += FAIR_WAIT_S / 2
        step(scheduler)
    assert (num_running(*greedy), num_running(*witnesses)) == (3, 3)
    assert scheduler.stats().num_preemptions == 3, "and there it stays"


def test_more_tenants_than_running_sequences_do_not_preempt_each_other():
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=2, clock=clock)
    for number in range(5):
        crowd(scheduler, f"tenant {number}", 1, first=10 * number + 1, max_tokens=30)
    while step(scheduler)[0]:
        clock.now += FAIR_WAIT_S
    assert scheduler.stats().num_preemptions == 0


def test_blocks_are_shared_like_running_sequences():
    """50 long runs filled the cache, and a short request of another project waited 92 s."""
    clock = Clock()
    scheduler = make_scheduler(num_blocks=32, max_num_batched_tokens=64, max_num_seqs=50, clock=clock)
    greedy = crowd(scheduler, "greedy", 30, num_prompt=8, max_tokens=60)
    for _ in range(20):
        step(scheduler)
    (witness,) = crowd(scheduler, "witness", 1, first=90, num_prompt=20, max_tokens=3)
    clock.now += FAIR_WAIT_S
    step(scheduler)
    assert len(witness.output_ids) == 1
    assert num_running(*greedy) > 1


def test_a_growing_sequence_takes_blocks_from_the_tenant_with_the_most():
    scheduler = make_scheduler(num_blocks=8, block_size=2, max_num_batched_tokens=32)
    greedy = crowd(scheduler, "greedy", 2, max_tokens=40)
    step(scheduler)
    (witness,) = crowd(scheduler, "witness", 1, first=50, max_tokens=6)
    while witness.status is not SequenceStatus.FINISHED:
        step(scheduler)
        assert witness.status is not SequenceStatus.PREEMPTED, "although it is the newest"
    assert greedy[1].status is SequenceStatus.PREEMPTED


def test_priority_precedes_shares_and_lower_priorities_do_not_count_towards_them():
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=4, clock=clock)
    urgent = crowd(scheduler, "urgent", 9, priority=-1)
    step(scheduler)
    (waiting,) = crowd(scheduler, "witness", 1, first=50)
    clock.now += 10 * FAIR_WAIT_S
    step(scheduler)
    assert num_running(waiting) == 0
    for sequence in urgent:
        scheduler.abort(sequence.seq_id)
    crowd(scheduler, "batches", 9, first=60, priority=5)
    own = crowd(scheduler, "batches", 1, first=80)
    others = crowd(scheduler, "other", 3, first=90)
    step(scheduler)
    assert num_running(waiting, *own, *others) == 4, "what is computed behind all others is not held against its tenant"


def test_a_preempted_sequence_gets_a_token_before_it_is_preempted_again():
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=3, max_num_batched_tokens=3, clock=clock)
    greedy = crowd(scheduler, "greedy", 3, num_prompt=9, max_tokens=50)
    for _ in range(12):
        step(scheduler)
    (first,) = crowd(scheduler, "first", 1, first=50, max_tokens=2)
    while first.status is not SequenceStatus.FINISHED:
        clock.now += FAIR_WAIT_S
        step(scheduler)
    (victim,) = [sequence for sequence in greedy if sequence.is_owed]
    while victim.status is not SequenceStatus.RUNNING:
        step(scheduler)
    (second,) = crowd(scheduler, "second", 1, first=60, max_tokens=30)
    clock.now += FAIR_WAIT_S
    num_before = len(victim.output_ids)
    step(scheduler)
    assert victim.status is SequenceStatus.RUNNING
    assert num_running(second) == 1
    assert len(victim.output_ids) >= num_before


def test_freed_blocks_go_to_the_sequence_that_preempted():
    """The preempted sequence left its tenant with the least, regained its blocks and was preempted in every step."""
    clock = Clock()
    scheduler = make_scheduler(num_blocks=100, max_num_batched_tokens=256, clock=clock)
    crowd(scheduler, "greedy", 1, num_prompt=30, max_tokens=200)
    step(scheduler)
    (long,) = crowd(scheduler, "greedy", 1, first=5, num_prompt=190, max_tokens=200)
    crowd(scheduler, "other", 1, first=50, num_prompt=100, max_tokens=200)
    for _ in range(3):
        step(scheduler)
    (waiting,) = crowd(scheduler, "other", 1, first=60, num_prompt=60, max_tokens=200)
    clock.now += FAIR_WAIT_S
    for _ in range(10):
        step(scheduler)
    assert (long.status, waiting.status) == (SequenceStatus.PREEMPTED, SequenceStatus.RUNNING)
    assert scheduler.stats().num_preemptions == 1
    assert not scheduler.check_integrity()


def test_nothing_is_preempted_for_a_sequence_whose_prefix_is_being_computed():
    clock = Clock()
    scheduler = make_scheduler(num_blocks=400, max_num_seqs=4, clock=clock)
    crowd(scheduler, "greedy", 4)
    step(scheduler)
    same = [make_sequence(50 + i, list(range(1000, 1100)), 9, tenant="other", cache_root=b"other") for i in range(2)]
    for sequence in same:
        scheduler.add(sequence)
    clock.now += FAIR_WAIT_S
    while not same[0].output_ids:
        step(scheduler)
        assert scheduler.stats().num_preemptions == 1, "the other choice of the request can only wait for the first"
    step(scheduler)
    assert same[1].status is SequenceStatus.RUNNING
    assert scheduler.stats().num_preemptions == 2


def test_a_block_shared_within_a_tenant_counts_once_for_it():
    blocks, running = BlockTables(16, 2, shares_prefixes=True), list[Sequence]()
    fair = FairShare(running, WaitingQueue(), blocks, 16)
    first, second = (make_sequence(number, [1, 2, 3, 4, 5 + number], tenant="one") for number in range(2))
    for sequence in (first, second):
        blocks.open(sequence)
        blocks.take(sequence, blocks.match(sequence))
        running.append(sequence)
        fair.forget("one")
        sequence.num_computed = 5
        blocks.register(sequence, 0)
    assert fair.dominant_share("one", 0) == 4 / 16, "two together, one each"
    blocks.add_for_drafts(first, 6, num_reserved=0)
    assert fair.dominant_share("one", 0) == 7 / 16
    blocks.trim(first)
    assert fair.dominant_share("one", 0) == 4 / 16
    running.remove(first)
    blocks.release(first)
    fair.forget("one")
    assert (fair.dominant_share("one", 0), fair.dominant_share("two", 0)) == (3 / 16, 0)


def test_no_step_is_planned_ahead_when_a_preemption_is_due():
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=2, clock=clock)
    crowd(scheduler, "greedy", 4)
    step(scheduler)
    crowd(scheduler, "witness", 1, first=50)
    plan = scheduler.plan()
    assert scheduler.plan_ahead(plan) is not None
    clock.now += FAIR_WAIT_S
    assert scheduler.plan_ahead(plan) is None


# Prompts


def computed(scheduler, tenants):
    """Return how many prompt tokens each tenant gets in the next step."""
    plan, _ = step(scheduler)
    return [sum(chunk.num_tokens for chunk in plan.chunks if chunk.sequence.tenant == tenant) for tenant in tenants]


def test_long_prompts_of_one_tenant_leave_others_an_equal_share_of_a_step():
    scheduler = make_scheduler(num_blocks=999, max_num_batched_tokens=16)
    crowd(scheduler, "greedy", 6, num_prompt=400)
    assert computed(scheduler, ["greedy"]) == [16]
    crowd(scheduler, "witness", 1, first=50, num_prompt=40)
    assert computed(scheduler, ["greedy", "witness"]) == [12, 4], "long ones share a half at first"
    crowd(scheduler, "third", 1, first=60, num_prompt=6)
    assert computed(scheduler, ["third"]) == [6]


def test_earlier_short_prompts_do_not_fill_whole_steps():
    scheduler = make_scheduler(num_blocks=999, max_num_batched_tokens=16, max_num_seqs=64)
    crowd(scheduler, "greedy", 40, num_prompt=14, max_tokens=1)
    (witness,) = crowd(scheduler, "witness", 1, first=50, num_prompt=16, max_tokens=1)
    for _ in range(2):
        step(scheduler)
    assert witness.status is SequenceStatus.FINISHED


def test_the_unused_share_of_a_tenant_goes_to_the_others():
    scheduler = make_scheduler(num_blocks=999, max_num_batched_tokens=16, max_num_seqs=64)
    crowd(scheduler, "greedy", 40, num_prompt=4, max_tokens=1)
    crowd(scheduler, "witness", 1, first=50, num_prompt=2, max_tokens=1)
    assert computed(scheduler, ["greedy", "witness"]) == [14, 2]


def test_prompts_of_a_better_priority_do_not_share_with_worse_ones():
    scheduler = make_scheduler(num_blocks=999, max_num_batched_tokens=16, max_num_seqs=64)
    crowd(scheduler, "batches", 4, num_prompt=12, max_tokens=1, priority=5)
    crowd(scheduler, "urgent", 2, first=50, num_prompt=8, max_tokens=1)
    assert computed(scheduler, ["urgent", "batches"]) == [16, 0]


def test_prompts_progress_beside_decodes_that_fill_a_step():
    """63 decodes in a step of 64 left one token per step for a prompt of 300."""
    scheduler = make_scheduler(num_blocks=999, max_num_batched_tokens=16, max_num_seqs=16)
    crowd(scheduler, "crowd", 15)
    for _ in range(4):
        step(scheduler)
    crowd(scheduler, "crowd", 1, first=50, num_prompt=12)
    assert computed(scheduler, ["crowd"]) == [15 + 4]


# Places in the queue


def test_a_queue_filled_by_one_tenant_admits_others_up_to_an_equal_share():
    scheduler = make_scheduler(max_waiting=6, max_num_seqs=2)
    crowd(scheduler, "greedy", 8)
    with pytest.raises(EngineUnavailable, match="share"):
        crowd(scheduler, "greedy", 1, first=20)
    crowd(scheduler, "witness", 4, first=30)
    with pytest.raises(EngineUnavailable, match="share"):
        crowd(scheduler, "witness", 1, first=40)
    crowd(scheduler, "third", 2, first=50)
    assert scheduler.stats().num_waiting == 14


def test_a_resumed_sequence_is_queued_even_if_the_queue_is_full():
    """Rounds of beams and sequences of a dead core failed if other requests had filled the queue meanwhile."""
    scheduler = make_scheduler(max_waiting=6, max_num_seqs=2)
    (begun, *_) = crowd(scheduler, "greedy", 8)
    crowd(scheduler, "witness", 4, first=30)
    scheduler.abort(begun.seq_id)
    scheduler.add(make_sequence(50, [1, 2], 9, tenant="greedy", output_ids=[3]))
    assert scheduler.stats().num_waiting == 12


# Victims


@pytest.mark.parametrize(
    ("windows", "num_blocks"), [((0, 17), 83), ((0, 9, 9), 95), ((17,), 26), ((17, 5), 38)], ids=str
)
@pytest.mark.parametrize("shares_prefixes", [True, False])
def test_prompts_that_grow_behind_windows_do_not_preempt_each_other_for_ever(windows, num_blocks, shares_prefixes):
    """Each in its turn held the most blocks, was preempted when either wanted another, and began again."""
    groups = CacheGroups(1, windows, chunk_tokens=4)
    scheduler = Scheduler(num_blocks, 1, 4, 2, 100, shares_prefixes, groups=groups, clock=Clock())
    for seq_id, tenant in enumerate(("one", "two"), 1):
        prompt = [100 * seq_id + i for i in range(33)]
        scheduler.add(make_sequence(seq_id, prompt, 1, tenant=tenant, cache_root=tenant.encode()))
    assert len(run(scheduler, 100)) == 2
    assert scheduler.stats().num_preemptions <= 3


@given(st.data())
@examples(200)
def test_victims_are_above_an_equal_share_and_make_enough_room(data):
    max_num_seqs, num_blocks = data.draw(st.integers(1, 8)), data.draw(st.integers(4, 24))
    blocks, queue = BlockTables(num_blocks, 1, shares_prefixes=True), WaitingQueue()
    running: list[Sequence] = []
    for number in range(max_num_seqs):
        tenant = data.draw(st.sampled_from("abc"))
        sequence = make_sequence(
            number, list(range(100 * number, 100 * number + data.draw(st.integers(1, 6)))), tenant=tenant
        )
        sequence.priority, sequence.is_owed, sequence.place = (
            data.draw(st.integers(0, 1)),
            data.draw(st.booleans()),
            number,
        )
        blocks.open(sequence)
        if blocks.has_room(sequence, [], 0):
            blocks.take(sequence, [])
            running.append(sequence)
    running.sort(key=lambda sequence: (sequence.priority, sequence.place))
    head = make_sequence(
        99, list(range(200, 200 + data.draw(st.integers(1, 12)))), tenant=data.draw(st.sampled_from("abcd"))
    )
    head.priority = data.draw(st.integers(0, 2))
    blocks.open(head)
    queue.add(head)
    fair = FairShare(running, queue, blocks, max_num_seqs)
    victims = fair.victims(head, is_due=True)
    assert all(sequence.priority >= head.priority for sequence in victims)
    equal = [sequence for sequence in victims if sequence.priority == head.priority]
    urgent = [sequence for sequence in running if sequence.priority <= head.priority]
    running_by_tenant = Counter(sequence.tenant for sequence in urgent)
    held = {
        tenant: sum(len(sequence.block_ids) for sequence in urgent if sequence.tenant == tenant)
        for tenant in running_by_tenant
    }
    num_tenants = len({*running_by_tenant, head.tenant})
    for sequence in equal:
        assert not sequence.is_owed
        assert sequence.tenant != head.tenant
        assert (
            running_by_tenant[sequence.tenant] > max(1, max_num_seqs / num_tenants)
            or held[sequence.tenant] > num_blocks / num_tenants
        )
    assert all(
        running_by_tenant[tenant] > count for tenant, count in Counter(sequence.tenant for sequence in equal).items()
    )
    if victims:
        assert all(sequence in victims for sequence in running if sequence.priority > head.priority) or not equal
        for sequence in victims:
            running.remove(sequence)
            blocks.release(sequence)
        assert len(running) < max_num_seqs
        assert blocks.has_room(head, [], len(running))
