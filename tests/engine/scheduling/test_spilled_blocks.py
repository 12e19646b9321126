"""What the prefix cache gives away comes back from the spill file, the same for the same tenant, a bit in each step."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.scheduler import Scheduler
from engine.sequence import SequenceStatus
from tests.engine.scheduling.sequences import OracleDrafter, WrittenFile, draw, make_sequence, solo_output
from tests.examples import examples

BLOCK_SIZE = 2


class Server:
    """A scheduler with a spill file, whose steps write down for which tokens of which tenant they wrote each slot."""

    def __init__(self, num_blocks, num_places, *, most_restored=1, max_num_batched_tokens=16, drafter=None):
        self.written = {}
        self.file = WrittenFile(num_places, self.written, BLOCK_SIZE, most_restored)
        self.scheduler = Scheduler(
            num_blocks, BLOCK_SIZE, max_num_batched_tokens, 4, 100, True, file=self.file, drafter=drafter
        )
        self.num_blocks = num_blocks
        self.most_restored = most_restored
        self.num_added = 0
        self.live = {}
        self.num_computed = Counter()
        """Prompt tokens computed, by sequence."""

    def add(self, prompt, tenant="", max_tokens=2):
        self.num_added += 1
        sequence = make_sequence(self.num_added, prompt, max_tokens, cache_root=tenant.encode(), tenant=tenant)
        self.live[sequence.seq_id] = sequence
        self.scheduler.add(sequence)
        return sequence

    def abort(self, sequence):
        self.scheduler.abort(sequence.seq_id)
        del self.live[sequence.seq_id]
        self.check()

    def step(self):
        """Plan and compute a step; return the sequences in it."""
        plan = self.plan()
        if plan is None:
            return []
        self.compute(plan)
        self.finish(plan)
        return [chunk.sequence for chunk in plan.chunks]

    def plan(self):
        num_read = self.file.num_read
        plan = self.scheduler.plan()
        assert self.file.num_read <= num_read + self.most_restored
        self.check()
        return plan

    def compute(self, plan, first=0.0, last=1.0):
        """Write the slots of a plan, of each chunk those from a part of it to another; check all before them."""
        for sequence, start, num_tokens, _, draft_ids in plan.chunks:
            computed = sequence.token_slice(0, start + num_tokens) + list(draft_ids)
            num_new = len(computed) - start
            end = start + round(last * num_new)
            for position in range(end):
                slot = sequence.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
                content = sequence.tenant, tuple(computed[: position + 1])
                if position >= start + round(first * num_new):
                    self.written[slot] = content
                assert self.written[slot] == content

    def finish(self, plan):
        """Advance by the tokens of a plan; sequences that end have the output that they have alone."""
        running = [chunk for chunk in plan.chunks if chunk.sequence.status is SequenceStatus.RUNNING]
        for chunk in running:
            self.num_computed[chunk.sequence.seq_id] += chunk.num_tokens
        sampled = {chunk.sequence.seq_id: draw(chunk) for chunk in running if chunk.samples}
        for sequence, _ in self.scheduler.advance(plan, sampled):
            del self.live[sequence.seq_id]
            assert sequence.output_ids == solo_output(make_sequence(0, sequence.prompt_ids, sequence.max_tokens))
        self.check()

    def serve(self, prompt, tenant="", max_tokens=1):
        """Compute a prompt to its end; return how many of its tokens were cached."""
        sequence = self.add(prompt, tenant, max_tokens)
        while self.live:
            self.step()
        return sequence.num_cached

    def check(self):
        assert self.scheduler.check_integrity() == ""

    @property
    def stats(self):
        return self.scheduler.stats()


def tokens(draw_from, count):
    return [draw_from.randint(100, 1 << 30) for _ in range(count)]


@examples(200)
@given(
    st.integers(0, 1 << 32).map(random.Random),
    st.integers(6, 16),
    st.integers(1, 60),
    st.integers(1, 4),
    st.sampled_from([0, 0, 3]),
    st.booleans(),
)
def test_every_token_is_computed_from_its_own_prefix_whatever_was_spilled_and_restored(
    choice, num_blocks, num_places, most_restored, draft_length, are_cut
):
    """Of two tenants with the same prompts, which go on from common beginnings and are aborted now and then.

    Steps that `are_cut` are in flight during those of others, and write before, between and after them.
    """
    drafter = OracleDrafter(draft_length, lambda place: place % 3 == 2) if draft_length else None
    server = Server(
        num_blocks,
        num_places,
        most_restored=most_restored,
        max_num_batched_tokens=choice.randint(1, 20),
        drafter=drafter,
    )
    most = (num_blocks - 1) * BLOCK_SIZE
    trunks = [tokens(choice, most) for _ in range(3)]
    for _ in range(60):
        if choice.random() < 0.5:
            trunk = choice.choice(trunks)[: choice.randint(1, most)]
            server.add((trunk + tokens(choice, choice.randint(0, 3)))[:most], choice.choice("ab"))
        if server.live and choice.random() < 0.1:
            server.abort(choice.choice(list(server.live.values())))
        if are_cut and choice.random() < 0.5 and (plan := server.plan()) is not None:
            server.scheduler.hold(plan)
            num_parts = choice.randint(1, 4)
            for part in range(num_parts):
                server.compute(plan, part / num_parts, (part + 1) / num_parts)
                if server.live and choice.random() < 0.1:
                    server.abort(choice.choice(list(server.live.values())))
                server.step()
            server.finish(plan)
        else:
            server.step()
    while server.live:
        server.step()
    assert not server.scheduler.is_restoring
    assert server.stats.num_free_blocks == num_blocks


@pytest.fixture
def choice():
    return random.Random(1)


def test_a_prefix_that_was_given_away_is_restored_and_counts_as_cached(choice):
    server = Server(10, 40)
    prefix, other = tokens(choice, 12), tokens(choice, 20)
    server.serve(prefix)
    server.serve(other)
    sequence = server.add([*prefix, 5, 6, 7])
    while server.live:
        server.step()
    assert sequence.num_cached == 12
    assert server.num_computed[sequence.seq_id] == 3 + 1
    stats = server.stats
    assert (stats.num_restored_blocks, stats.num_cached_tokens, stats.num_lost_blocks) == (6, 12, 0)
    assert stats.num_spilled_blocks >= 6


def test_others_are_computed_while_a_prefix_is_restored(choice):
    server = Server(20, 40, most_restored=2)
    prefix = tokens(choice, 20)
    server.serve(prefix)
    server.serve(tokens(choice, 40))
    stream = server.add(tokens(choice, 2), max_tokens=8)
    server.step()
    sequence = server.add([*prefix, 5])
    for num_restored in (4, 8, 12, 16):
        assert server.step() == [stream]
        assert sequence.num_computed == num_restored
    assert set(server.step()) == {stream, sequence}


def test_a_prefix_alone_is_restored_without_steps_of_others(choice):
    server = Server(10, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    server.serve(tokens(choice, 20))
    server.add([*prefix, 5])
    assert server.step() == []
    assert server.scheduler.is_restoring


def test_two_that_share_a_spilled_prefix_restore_it_once(choice):
    server = Server(20, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    server.serve(tokens(choice, 40))
    first, second = server.add([*prefix, 5]), server.add([*prefix, 6])
    while server.live:
        server.step()
    assert (first.num_cached, second.num_cached) == (12, 12)
    assert server.stats.num_restored_blocks == 6


def test_tenants_do_not_restore_each_others_blocks(choice):
    server = Server(10, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix, "one")
    server.serve(tokens(choice, 20), "one")
    assert server.serve([*prefix, 5], "two") == 0
    assert server.stats.num_restored_blocks == 0
    assert server.serve([*prefix, 5], "one") == 12


def test_an_abort_while_restoring_frees_all_blocks_and_loses_nothing(choice):
    server = Server(10, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    server.serve(tokens(choice, 20))
    sequence = server.add([*prefix, 5])
    server.step()
    assert sequence.status is SequenceStatus.RUNNING
    server.abort(sequence)
    assert server.stats.num_free_blocks == 10
    assert not server.scheduler.is_restoring
    assert server.serve([*prefix, 5]) == 12


def test_blocks_of_a_sequence_that_has_failed_are_not_restored(choice):
    server = Server(10, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    server.serve(tokens(choice, 20))
    sequence = server.add([*prefix, 5])
    while (plan := server.scheduler.plan()) is None:
        pass
    server.scheduler.advance(plan, {})
    server.live.clear()
    assert sequence.status is SequenceStatus.FINISHED
    server.check()
    assert server.serve([*prefix, 5]) == 0


def test_a_full_file_loses_what_was_given_away_least_recently(choice):
    server = Server(10, 8)
    old, middle, new = (tokens(choice, 8) for _ in range(3))
    for prefix in (old, middle, new, tokens(choice, 20)):
        server.serve(prefix)
    assert server.stats.num_lost_blocks > 0
    assert server.serve([*old, 5]) == 0


def test_what_was_restored_is_not_written_again(choice):
    server = Server(10, 40)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    for _ in range(3):
        server.serve(tokens(choice, 20))
        num_spilled = server.stats.num_spilled_blocks
        assert server.serve([*prefix, 5]) == 12
    server.serve(tokens(choice, 20))
    assert server.stats.num_spilled_blocks == num_spilled + 10, "those of what passed meanwhile"


def test_a_full_file_does_not_lose_what_is_about_to_be_restored(choice):
    """Taking blocks for a prefix gives others away, which want the places of the least recent, the prefix's own."""
    server = Server(10, 16)
    prefix = tokens(choice, 12)
    server.serve(prefix)
    for _ in range(2):
        server.serve(tokens(choice, 20))
    assert server.serve([*prefix, 5]) == 12
