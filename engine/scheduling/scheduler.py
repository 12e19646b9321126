"""Decides what each step computes: one budget of tokens, handed out to sequences whose computed tokens chase their known ones.

There are no prefill and decode phases. A step
0. preempts sequences of worse priority where they keep the most urgent waiting one from a seat or from blocks: they give up their
   blocks and later compute again what the prefix cache lost,
1. gives every running sequence that lacks one token that token; if there is no block for it, the running sequence of
   worst priority, youngest first, is preempted,
2. lets these decodes verify drafts, tokens that a drafter expects next, within a share of the budget; nobody is preempted for them
   (prompts that come to their end do so too, with what is left in the end),
3. lets running prompts go on,
4. seats waiting sequences, best first, while tokens, seats and blocks last,
5. gives what is left to the prompts that were held to their share.

All blocks for the known tokens of a sequence are taken when it is seated, so only decodes can run out of them. Pure Python;
called by the core, one `advance` after each `plan`. Method: Orca (iteration-level scheduling), Sarathi-Serve (chunked
prefill, https://arxiv.org/abs/2403.02310), vLLM (https://arxiv.org/abs/2309.06180).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from engine.api.errors import EngineUnavailable, ErrorCode, RequestError
from engine.messages import CoreStats
from engine.scheduling.block_accounts import BlockAccounts
from engine.scheduling.drafting import Drafter, Drafting
from engine.scheduling.ending import end_reason
from engine.scheduling.plan import Chunk, Finished, StepPlan
from engine.scheduling.waiting import WaitingQueue, urgency
from engine.sequence import Sequence, SequenceStatus


class Scheduler:
    """Owns the queue, the seats and the block accounts, and writes a sequence's status, tokens and computed count.

    `quiet_step_tokens` is the budget of a step in which nobody waits for a next token: prompts then go in larger pieces.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        step_tokens: int,
        max_sequences: int,
        max_waiting: int,
        prefix_caching: bool,
        quiet_step_tokens: int = 0,
        drafter: Drafter | None = None,
        is_complete: Callable[[Sequence], bool] | None = None,
    ) -> None:
        """`is_complete` says of a sequence with a grammar whether its answer can only end."""
        self._step_tokens = step_tokens
        self._quiet_step_tokens = quiet_step_tokens or step_tokens
        self._share_tokens = max(1, step_tokens // 2)
        self._max_running = min(max_sequences, step_tokens)
        self._max_waiting = max_waiting
        self._max_known = max_waiting + max_sequences
        self._is_complete = is_complete
        self._blocks = BlockAccounts(num_blocks, block_size, prefix_caching)
        self._drafting = Drafting(drafter, self._blocks, step_tokens)
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []  # most urgent first
        self._sequences: dict[int, Sequence] = {}
        self._num_arrived = 0
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence and number its arrival.

        Raises RequestError if it could never be computed or has nothing left to generate, EngineUnavailable if queue and seats are
        full. Seats count although they may be empty: all that a dead core had running comes back at once.
        """
        assert sequence.seq_id not in self._sequences
        if sequence.num_tokens > self._blocks.capacity_tokens:
            raise RequestError(
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt must have at most {self._blocks.capacity_tokens} tokens, the size of the KV cache, got {sequence.num_tokens}",
                "messages",
            )
        if not sequence.prompt_ids or len(sequence.output_ids) >= sequence.max_tokens:
            raise RequestError(ErrorCode.INVALID_VALUE, "the sequence has no prompt or nothing left to generate", "max_tokens")
        if len(self._sequences) >= self._max_known:
            raise EngineUnavailable(ErrorCode.OVERLOADED, f"the queue is full ({self._max_waiting} requests wait); try again later")
        self._num_arrived += 1
        sequence.arrival = self._num_arrived
        sequence.status = SequenceStatus.WAITING
        self._sequences[sequence.seq_id] = sequence
        self._blocks.open(sequence)
        self._waiting.arrive(sequence)

    def abort(self, seq_id: int) -> Sequence | None:
        """End a sequence now, also between plan and advance; returns it, or None if the id is unknown."""
        sequence = self._sequences.get(seq_id)
        if sequence is not None:
            self._end(sequence)
        return sequence

    def plan(self) -> StepPlan | None:
        """Hand out one step; None if nothing is to be done. The steps are those of the module's docstring."""
        self._make_room()
        decodes, prefills = self._plan_running()
        grants: list[tuple[Sequence, int]] = []
        budget = self._step_tokens - len(decodes) if decodes else self._quiet_step_tokens
        drafted: list[Chunk] = []
        if self._drafting and decodes:
            decodes, drafted = self._drafting.split(decodes, budget, len(self._running))
            budget -= sum(len(chunk.draft_ids) for chunk in drafted)
        long_budget = self._share_tokens
        for sequence in prefills:
            num_tokens = self._grant(sequence.num_tokens - sequence.num_computed, budget, long_budget)
            if num_tokens:
                budget -= num_tokens
                long_budget -= num_tokens if self._is_long(sequence) else 0
                grants.append((sequence, num_tokens))
        if budget and self._waiting:
            budget = self._seat_waiting(decodes, grants, budget, long_budget)
        if not decodes and not drafted and not grants:
            return None
        prompts = self._prefill_chunks(grants, budget)
        if self._drafting and prompts:
            budget -= sum(chunk.num_tokens for chunk in prompts) - sum(num_tokens for _, num_tokens in grants)
            prompts = [chunk for part in self._drafting.split(prompts, budget, len(self._running)) for chunk in part]
        return StepPlan(tuple(decodes + drafted + prompts))

    def plan_ahead(self, plan: StepPlan) -> StepPlan | None:
        """The step after a plan of decodes whose tokens are not known yet, before its `advance`; None if it cannot be told yet.

        Every sequence that still runs gets one token more, except those that the plan's own token brings to their limit. One that turns
        out to have ended is skipped by the `advance` of the step ahead. Nobody is seated or preempted: for that there is `plan`.
        """
        running = [chunk.sequence for chunk in plan.chunks if chunk.sequence.status is SequenceStatus.RUNNING]
        if len(running) != len(self._running) or self._may_seat():
            return None
        chunks = []
        for sequence in running:
            num_tokens = sequence.num_tokens + 1
            if len(sequence.output_ids) + 1 >= sequence.max_tokens or num_tokens > self._blocks.capacity_tokens:
                continue
            if num_tokens > len(sequence.block_ids) * self._blocks.block_size:
                if not self._blocks.num_free:
                    return None
                self._blocks.add(sequence)
            chunks.append(Chunk(sequence, num_tokens - 1, 1, True))
        return StepPlan(tuple(chunks)) if chunks else None

    def advance(self, plan: StepPlan, sampled: dict[int, list[int]]) -> list[Finished]:
        """Take in what a step has computed: `sampled` holds the new token ids by `seq_id`.

        Appends tokens, makes full blocks findable and ends sequences. Of several tokens all but the last must be the chunk's drafts: these
        are computed, what was computed of other drafts counts for nothing. A sequence whose chunk samples but that is not in `sampled`
        has failed; its blocks are forgotten, as their content may be what broke it. Chunks of aborted sequences are skipped.
        """
        self._num_steps += 1
        blocks, block_size = self._blocks, self._blocks.block_size
        finished = []
        for sequence, start, num_tokens, samples, draft_ids in plan.chunks:
            if sequence.status is not SequenceStatus.RUNNING:
                continue
            reason = None
            sequence.num_computed = start + num_tokens
            if samples:
                token_ids = sampled.get(sequence.seq_id)
                if not token_ids:
                    blocks.forget(sequence)
                    finished.append(Finished(sequence, "failed"))
                    continue
                reason = self._append(sequence, token_ids)
                sequence.num_computed = sequence.num_tokens - 1
            elif sequence.embed is not None and sequence.num_computed == sequence.num_tokens:
                reason = "embedded"
            if blocks.shares_prefixes and sequence.num_computed // block_size > start // block_size:
                blocks.register(sequence, start // block_size)
            if reason:
                finished.append(Finished(sequence, reason))
            elif draft_ids:
                blocks.trim(sequence)
        for sequence, _ in finished:
            self._end(sequence)
        return finished

    def end_reason(self, sequence: Sequence) -> str | None:
        """Why a sequence would end with its last token, or None; `advance` ends it there."""
        reason = end_reason(sequence, self._blocks.capacity_tokens)
        if reason != "stop" and sequence.grammar and self._is_complete is not None and self._is_complete(sequence):
            return "complete"
        return reason

    def stats(self) -> CoreStats:
        """Count what there is and what has been done."""
        return CoreStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_free_blocks=self._blocks.num_free,
            num_blocks=self._blocks.num_blocks,
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            num_preemptions=self._num_preemptions,
        )

    def check_integrity(self) -> str:
        """Verify the accounts of blocks and sequences; returns what is wrong first, or ''."""
        for sequence in self._running:
            if sequence.num_computed > len(sequence.block_ids) * self._blocks.block_size:
                return f"sequence {sequence.seq_id} has more computed tokens than room in its blocks"
        if len(self._running) + len(self._waiting) != len(self._sequences):
            return "a sequence is neither running nor waiting, or both"
        if any(sequence.block_ids or sequence.num_computed for sequence in self._waiting.first(len(self._waiting))):
            return "a waiting sequence holds blocks or computed tokens"
        return self._blocks.check_integrity(self._sequences.keys(), self._running)

    def _plan_running(self) -> tuple[list[Chunk], list[Sequence]]:
        """Return the chunks of running sequences that lack one token, and the running sequences that lack more."""
        decodes: list[Chunk] = []
        prefills: list[Sequence] = []
        running = self._running
        block_size = self._blocks.block_size
        index = 0
        while index < len(running):
            sequence = running[index]
            index += 1
            num_tokens = len(sequence.prompt_ids) + len(sequence.output_ids)
            start = sequence.num_computed
            if num_tokens - start > 1:
                prefills.append(sequence)
                continue
            if num_tokens > len(sequence.block_ids) * block_size and not self._append_block(sequence):
                continue
            decodes.append(Chunk(sequence, start, 1, sequence.embed is None))
        return decodes, [sequence for sequence in prefills if sequence.status is SequenceStatus.RUNNING]

    def _make_room(self) -> None:
        """Preempt for the most urgent waiting sequence, as long as that helps, whoever has worse priority.

        Nobody is preempted in vain: the blocks that better or equal ones hold must leave enough for it.
        """
        running = self._running
        if not self._waiting or not running or running[-1].priority <= self._waiting.first(1)[0].priority:
            return
        (sequence,) = self._waiting.first(1)
        others = [other for other in running if other.priority <= sequence.priority]
        held = {block_id for other in others for block_id in other.block_ids}
        if len(others) == self._max_running or self._blocks.count(sequence) + len(others) > self._blocks.num_blocks - len(held):
            return
        _, matched = self._blocks.match(sequence)
        while len(running) > len(others) and not (len(running) < self._max_running and self._has_blocks_for(sequence, matched)):
            self._preempt_worst()

    def _may_seat(self) -> bool:
        """Whether a waiting sequence could get a seat, an empty one or that of a sequence of worse priority."""
        if not self._waiting or not self._running:
            return bool(self._waiting)
        return len(self._running) < self._max_running or self._running[-1].priority > self._waiting.first(1)[0].priority

    def _append_block(self, sequence: Sequence) -> bool:
        """Give a running sequence one more block; False if it was itself preempted for want of one.

        NOTE: `_running` is sorted, so its last entry is the worst, and no chunk has been planned for it yet. A sequence that runs
        alone finds a block: it is within the capacity, and nobody else holds any.
        """
        while not self._blocks.num_free:
            self._preempt_worst()
            if sequence.status is SequenceStatus.PREEMPTED:
                return False
        self._blocks.add(sequence)
        return True

    def _preempt_worst(self) -> None:
        victim = self._running.pop()
        self._blocks.release(victim)
        victim.num_computed = 0
        victim.status = SequenceStatus.PREEMPTED
        self._waiting.add(victim)
        self._num_preemptions += 1

    def _is_long(self, sequence: Sequence) -> bool:
        return sequence.num_tokens - sequence.num_computed > self._step_tokens

    def _grant(self, num_missing: int, budget: int, long_budget: int) -> int:
        """Return how many tokens a prompt gets at first. Prompts longer than a step together get no more than their share of it."""
        if num_missing > self._step_tokens:
            budget = min(budget, long_budget)
        return min(num_missing, budget)

    def _seat_waiting(self, decodes: list[Chunk], grants: list[tuple[Sequence, int]], budget: int, long_budget: int) -> int:
        """Seat waiting sequences and add their work to `decodes` and `grants`; returns the budget that is left.

        Nobody overtakes a sequence for which there are no blocks. A sequence whose next block is computed by another one in this
        very step is passed over: in the next step it will find that block in the cache.
        """
        in_progress = self._digests_in_progress(grants)
        for sequence in self._waiting.first(self._max_running - len(self._running)):
            if not budget:
                break
            digests, matched = self._blocks.match(sequence)
            if len(matched) < self._blocks.num_matchable(sequence) and digests[len(matched)] in in_progress:
                continue
            num_missing = sequence.num_tokens - len(matched) * self._blocks.block_size
            num_tokens = self._grant(num_missing, budget, long_budget)
            if not num_tokens:
                continue
            if not self._seat(sequence, matched):
                break
            budget -= num_tokens
            if num_missing == 1:
                decodes.append(Chunk(sequence, sequence.num_computed, 1, sequence.embed is None))
                continue
            long_budget -= num_tokens if num_missing > self._step_tokens else 0
            grants.append((sequence, num_tokens))
            in_progress |= self._digests_in_progress(grants[-1:])
        return budget

    def _digests_in_progress(self, grants: list[tuple[Sequence, int]]) -> set[bytes]:
        """Collect the digests of the blocks that these grants fill."""
        return {digest for sequence, num_tokens in grants for digest in self._blocks.digests_filled(sequence, num_tokens)}

    def _has_blocks_for(self, sequence: Sequence, matched: list[int]) -> bool:
        """Tell whether a waiting sequence could be seated with these blocks from the cache.

        One block per running sequence stays free for the next tokens, or a new prompt would soon be preempted again.
        """
        return self._blocks.has_room(sequence, matched, num_reserved=len(self._running))

    def _seat(self, sequence: Sequence, matched: list[int]) -> bool:
        """Give a waiting sequence a seat and blocks for all its known tokens, `matched` first; False if there are too few."""
        if not self._has_blocks_for(sequence, matched):
            return False
        self._waiting.remove(sequence)
        self._blocks.take(sequence, matched)
        sequence.num_computed = len(matched) * self._blocks.block_size
        sequence.status = SequenceStatus.RUNNING
        insort(self._running, sequence, key=urgency)
        if sequence.num_cached is None:
            sequence.num_cached = min(sequence.num_computed, len(sequence.prompt_ids))
            self._num_prompt_tokens += len(sequence.prompt_ids)
            self._num_cached_tokens += sequence.num_cached
        return True

    def _prefill_chunks(self, grants: list[tuple[Sequence, int]], budget: int) -> list[Chunk]:
        """Make chunks of the grants, after handing out what is left of the budget in the same order."""
        chunks = []
        for sequence, num_tokens in grants:
            start = sequence.num_computed
            num_missing = sequence.num_tokens - start
            extra = min(budget, num_missing - num_tokens)
            budget -= extra
            chunks.append(Chunk(sequence, start, num_tokens + extra, num_tokens + extra == num_missing and sequence.embed is None))
        return chunks

    def _append(self, sequence: Sequence, token_ids: list[int]) -> str | None:
        """Append sampled tokens up to the one that ends the sequence; returns why it ended, or None."""
        output_ids = sequence.output_ids
        for token_id in token_ids:
            output_ids.append(token_id)
            self._num_output_tokens += 1
            if reason := self.end_reason(sequence):
                return reason
        return None

    def _end(self, sequence: Sequence) -> None:
        if sequence.status is SequenceStatus.RUNNING:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self._blocks.close(sequence)
        sequence.status = SequenceStatus.FINISHED
        del self._sequences[sequence.seq_id]
