"""Random lives of a scheduler, with and without windows, with and without a spill file.

Block counts balance, every sequence gets its own tokens, finds all that it sees in the cache, and holds no more blocks
than its groups need.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import EmbedOptions
from engine.attention.cache_groups import NO_BLOCK, CacheGroups
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting import urgency
from engine.sequence import SequenceStatus
from tests.engine.scheduling.sequences import OracleDrafter, WrittenFile, draw, make_sequence, solo_output
from tests.examples import examples

ROOTS = (b"one", b"two", b"two, salted")
TENANTS = {b"one": "one", b"two": "two", b"two, salted": "two"}


class SchedulerMachine(RuleBasedStateMachine):
    """Random operations on a scheduler and a model of the cache.

    `written`: the (group, root, tokens up to here) that each slot was last written for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = {}
        self.expected = {}
        self.written = {}
        self.file = None
        self.plan = None
        self.in_flight = None
        self.tables = {}
        """The block tables of the sequences in flight."""
        self.num_added = 0
        self.now = 0.0

    @initialize(
        num_blocks=st.integers(4, 24),
        block_size=st.sampled_from([1, 2, 4]),
        max_num_batched_tokens=st.integers(1, 20),
        max_num_seqs=st.integers(1, 6),
        caching=st.booleans(),
        draft_length=st.sampled_from([0, 1, 3, 9]),
        error_every=st.integers(1, 7),
        windows=st.sampled_from([(0,), (0,), (3,), (0, 1), (0, 6), (0, 0, 4), (0, 2, 2), (9, 3)]),
        chunk_tokens=st.integers(1, 24),
        num_places=st.sampled_from([0, 1, 5, 40]),
        cut_step_tokens=st.sampled_from([0, 9, 40]),
        mixed_step_tokens=st.sampled_from([0, 1, 18]),
    )
    def start(
        self,
        num_blocks,
        block_size,
        max_num_batched_tokens,
        max_num_seqs,
        caching,
        draft_length,
        error_every,
        windows,
        chunk_tokens,
        num_places,
        cut_step_tokens,
        mixed_step_tokens,
    ):
        self.num_blocks, self.block_size, self.max_num_batched_tokens, self.max_num_seqs = (
            num_blocks,
            block_size,
            max_num_batched_tokens,
            max_num_seqs,
        )
        self.first_step_tokens = max_num_batched_tokens
        self.cut_step_tokens = cut_step_tokens
        self.groups = CacheGroups(block_size, windows, chunk_tokens=chunk_tokens)
        self.capacity = min(200, self.groups.capacity_tokens(num_blocks))
        self.caching = caching
        if num_places and windows == (0,):
            self.file = WrittenFile(num_places, self.written, block_size, most_restored=2)
        self.draft_length = draft_length
        drafter = (
            OracleDrafter(draft_length, lambda place: place % error_every == error_every - 1) if draft_length else None
        )
        self.scheduler = Scheduler(
            num_blocks,
            block_size,
            max_num_batched_tokens,
            max_num_seqs,
            1000,
            caching,
            groups=self.groups,
            file=self.file,
            cut_step_tokens=cut_step_tokens,
            mixed_step_tokens=mixed_step_tokens,
            drafter=drafter,
            clock=lambda: self.now,
        )

    @precondition(lambda self: self.plan is None)
    @rule(more_tokens=st.integers(0, 20), mixed_step_tokens=st.sampled_from([0, 1, 18]))
    def resize(self, more_tokens, mixed_step_tokens):
        self.max_num_batched_tokens = tokens = min(self.max_num_seqs, self.first_step_tokens) + more_tokens
        self.scheduler.resize(tokens, tokens, self.cut_step_tokens, mixed_step_tokens)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0]))
    def let_time_pass(self, seconds):
        self.now += seconds

    @rule(
        prefix=st.integers(0, 16),
        tail=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        max_tokens=st.integers(1, 8),
        min_tokens=st.integers(0, 8),
        priority=st.integers(0, 2),
        root=st.sampled_from(ROOTS),
        group=st.sampled_from(["", "", "a", "b"]),
        resumed=st.booleans(),
    )
    def add(self, prefix, tail, max_tokens, min_tokens, priority, root, group, resumed):
        capacity = self.capacity
        prompt = ([60 + i for i in range(prefix)] + tail)[: max(1, capacity - 10)]
        max_tokens = min(max_tokens, capacity - len(prompt))
        if max_tokens < 1 or (resumed and max_tokens < 2):
            return
        self.num_added += 1
        sequence = make_sequence(
            self.num_added,
            prompt,
            max_tokens,
            priority=priority,
            min_tokens=min(min_tokens, max_tokens),
            cache_root=root,
            group=f"{TENANTS[root]} {group}" if group else "",
            tenant=TENANTS[root],
            output_ids=[11] if resumed else [],
        )
        self.expected[sequence.seq_id] = solo_output(sequence)
        self.live[sequence.seq_id] = sequence
        self.scheduler.add(sequence)

    @rule(
        prefix=st.integers(0, 30),
        tail=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        priority=st.integers(0, 2),
        root=st.sampled_from(ROOTS),
        pooling=st.sampled_from(["mean", "last"]),
    )
    def add_prompt_for_a_vector(self, prefix, tail, priority, root, pooling):
        prompt = ([60 + i for i in range(prefix)] + tail)[: self.capacity]
        self.num_added += 1
        sequence = make_sequence(
            self.num_added,
            prompt,
            1,
            priority=priority,
            cache_root=root,
            tenant=TENANTS[root],
            embed=EmbedOptions(pooling),
        )
        self.expected[sequence.seq_id] = []
        self.live[sequence.seq_id] = sequence
        self.scheduler.add(sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data):
        seq_id = data.draw(st.sampled_from(sorted(self.live)))
        assert self.scheduler.abort(seq_id) is self.live.pop(seq_id)

    @precondition(lambda self: self.plan is None)
    @rule()
    def make_plan(self):
        was_running = [sequence for sequence in self.live.values() if sequence.status is SequenceStatus.RUNNING]
        num_read = self.file.num_read if self.file else 0
        self.plan = self.scheduler.plan()
        self.check_victims(was_running)
        if self.in_flight is None:
            assert (self.plan is None and not self.scheduler.is_restoring) == (not self.live)
        assert not self.file or self.file.num_read <= num_read + 2
        if self.plan is None:
            return
        chunks = self.plan.chunks
        assert not self.tables.keys() & {chunk.sequence for chunk in chunks}
        num_prompt_tokens = sum(chunk.num_positions for chunk in chunks if chunk.num_tokens > 1)
        most = self.max_num_batched_tokens + min(num_prompt_tokens, self.max_num_batched_tokens // 4)
        if self.in_flight is None and all(chunk.start + 1 < chunk.sequence.num_tokens for chunk in chunks):
            most = max(most, self.cut_step_tokens)
        assert 1 <= sum(chunk.num_positions for chunk in chunks) <= most
        assert len({chunk.sequence.seq_id for chunk in chunks}) == len(chunks) <= self.max_num_seqs
        one_token = [chunk.num_positions == 1 and chunk.start + 1 == chunk.sequence.num_tokens for chunk in chunks]
        assert one_token == sorted(one_token, reverse=True)
        for sequence, start, num_tokens, samples, draft_ids in chunks:
            assert sequence.status is SequenceStatus.RUNNING
            assert start == sequence.num_computed, "tokens are computed once, without gaps"
            assert num_tokens > 0
            assert samples == (start + num_tokens == sequence.num_tokens and sequence.embed is None)
            end = start + num_tokens + len(draft_ids)
            assert sequence.num_placed >= end
            extra = self.groups.num_spans(2 * self.draft_length)
            most = self.groups.held_spans(max(end, sequence.num_tokens))
            assert all(held <= count + extra for held, count in zip(self.spans_held(sequence), most, strict=True))
            assert samples or not draft_ids
            assert len(sequence.output_ids) + len(draft_ids) < sequence.max_tokens or not draft_ids
            assert sequence.block_ids
            if not self.caching or (sequence.embed is not None and sequence.embed.pooling == "mean"):
                assert not sequence.num_cached

    def check_victims(self, was_running):
        """Check that preemption takes the worst sequences first.

        A sequence that keeps running has no worse priority than a preempted one, and is more urgent than preempted ones
        of its tenant. Sequences that were owed their place are left out, as are those preempted and started again, and
        those in flight, which are never preempted.
        """
        for sequence, table in self.tables.items():
            assert sequence.status in (SequenceStatus.RUNNING, SequenceStatus.FINISHED)
            assert sequence.block_ids == table
        was_running = [sequence for sequence in was_running if sequence not in self.tables]
        victims = [sequence for sequence in was_running if sequence.status is SequenceStatus.PREEMPTED]
        kept = [
            sequence for sequence in was_running if sequence.status is SequenceStatus.RUNNING and not sequence.is_owed
        ]
        for victim in victims:
            assert all(other.priority <= victim.priority for other in kept)
            assert all(urgency(other) < urgency(victim) for other in kept if other.tenant == victim.tenant)

    @precondition(
        lambda self: (
            self.plan is not None
            and self.in_flight is None
            and all(chunk.sequence.status is SequenceStatus.RUNNING for chunk in self.plan.chunks)
        )
    )
    @rule()
    def hold(self):
        self.in_flight, self.plan = self.plan, None
        self.scheduler.hold(self.in_flight)
        self.tables = {chunk.sequence: list(chunk.sequence.block_ids) for chunk in self.in_flight.chunks}

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def land(self):
        plan, self.in_flight, self.tables = self.in_flight, None, {}
        self.compute(plan)

    @precondition(lambda self: self.plan is not None)
    @rule()
    def advance(self):
        plan, self.plan = self.plan, None
        self.compute(plan)

    def compute(self, plan):
        sampled = {}
        for chunk in plan.chunks:
            sequence, start, num_tokens, samples, draft_ids = chunk
            if sequence.status is SequenceStatus.FINISHED and not sequence.block_ids:
                continue
            self.check_cache(sequence, start)
            computed = sequence.token_slice(0, start + num_tokens) + list(draft_ids)
            for position in range(start, len(computed)):
                content = (sequence.request.cache_root, tuple(computed[: position + 1]))
                for group in range(self.groups.count):
                    self.written[self.slot(sequence, position, group)] = (group, *content)
            if samples and sequence.status is SequenceStatus.RUNNING:
                sampled[sequence.seq_id] = draw(chunk)
        for sequence, reason in self.scheduler.advance(plan, sampled):
            del self.live[sequence.seq_id]
            assert sequence.output_ids == self.expected[sequence.seq_id]
            if sequence.embed is not None:
                assert (reason, sequence.num_computed) == ("embedded", len(sequence.prompt_ids))
                continue
            assert reason == (
                "stop" if len(sequence.output_ids) < sequence.max_tokens or self.ends_with_stop(sequence) else "length"
            )

    @precondition(
        lambda self: (
            self.plan is not None and self.in_flight is None and all(chunk.samples for chunk in self.plan.chunks)
        )
    )
    @precondition(lambda self: not self.file)  # devices plan ahead, and have no spill file
    @rule()
    def plan_ahead_and_advance(self):
        """Plan the next step before the tokens of this one are known; this one still sees its blocks."""
        plan = self.plan
        if all(chunk.num_positions == 1 for chunk in plan.chunks):
            ahead = self.scheduler.plan_ahead(plan)
            self.advance()
            self.plan = ahead

    def ends_with_stop(self, sequence):
        return (
            sequence.output_ids[-1] in sequence.stop_ids and len(sequence.output_ids) > sequence.request.stop.min_tokens
        )

    def slot(self, sequence, position, group):
        block_id = sequence.block_ids[position // self.block_size * self.groups.count + group]
        assert block_id != NO_BLOCK
        return block_id * self.block_size + position % self.block_size

    def check_cache(self, sequence, num_computed):
        """Check that every position that the next token sees holds the keys of exactly this prefix of this tenant."""
        root = sequence.request.cache_root
        for group, window in enumerate(self.groups.windows):
            for position in range(max(0, num_computed - window + 1) if window else 0, num_computed):
                content = (group, root, tuple(sequence.token_slice(0, position + 1)))
                assert self.written[self.slot(sequence, position, group)] == content

    def spans_held(self, sequence):
        """Return how many spans a sequence holds in each group."""
        tables = (sequence.block_ids[group :: self.groups.count] for group in range(self.groups.count))
        return [len(table) - table.count(NO_BLOCK) for table in tables]

    @invariant()
    def accounts_balance(self):
        if hasattr(self, "scheduler"):
            assert self.scheduler.check_integrity() == ""

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for _ in range(2000):
            if self.plan is not None:
                self.advance()
            if self.in_flight is not None:
                self.land()
            self.now += 0.5
            self.make_plan()
            if self.plan is None and not self.scheduler.is_restoring:
                break
        assert not self.live
        assert self.scheduler.stats().num_free_blocks == self.num_blocks


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = examples(60, stateful_step_count=40)
