"""Decides what each step computes: one budget of tokens, handed out to sequences whose computed tokens chase their known ones.

There are no prefill and decode phases. A step
0. preempts sequences of worse priority where they keep the most urgent waiting one from a seat or from blocks: they give up their
   blocks and later compute again what the prefix cache lost; and sequences of tenants above an equal share for a tenant below it that
   has waited (fair_share.py); the one that room was made for is seated,
1. gives every running sequence that lacks one token that token; if there is no block for it, the running sequence of
   worst priority, youngest first, is preempted,
2. lets these decodes verify drafts, tokens that a drafter expects next, within a share of the budget; nobody is preempted for them
   (prompts that come to their end do so too, with what is left in the end),
3. lets running prompts go on, each tenant's within an equal share of what is left, or of a quarter of the budget if that is more
   (prompt_budget.py),
4. seats waiting sequences, best priority first, then those of the tenant that holds the least, while tokens, seats and blocks last,
5. gives what is left to the prompts that were held to their share.

All blocks for the known tokens of a sequence are taken when it is seated, so only decodes can run out of them. Pure Python;
called by the core, one `advance` after each `plan`. Method: Orca (iteration-level scheduling), Sarathi-Serve (chunked
prefill, https://arxiv.org/abs/2403.02310), vLLM (https://arxiv.org/abs/2309.06180).
"""

from __future__ import annotations

import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable

from engine.api.errors import ErrorCode, RequestError
from engine.messages import CoreStats
from engine.scheduling.block_tables import BlockTables
from engine.scheduling.drafting import Drafter, Drafting
from engine.scheduling.ending import end_reason
from engine.scheduling.fair_share import FAIR_WAIT_S, FairShare
from engine.scheduling.plan import Chunk, Finished, StepPlan
from engine.scheduling.prompt_budget import PROMPT_SHARE, PromptBudget
from engine.scheduling.queue_places import has_place, queue_full
from engine.scheduling.waiting import WaitingQueue, urgency
from engine.sequence import Sequence, SequenceStatus


class Scheduler:
    """Owns the queue, the seats and the block accounts, and writes a sequence's status, tokens and computed count.

    `prefill_only_token_budget` is the budget of a step in which nobody waits for a next token: prompts then go in larger pieces.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        max_waiting: int,
        prefix_caching: bool,
        prefill_only_token_budget: int = 0,
        drafter: Drafter | None = None,
        is_complete: Callable[[Sequence], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_complete` says of a sequence with a grammar whether its answer can only end. `clock`: seconds, which count waiting."""
        self._step_tokens = max_num_batched_tokens
        self._quiet_step_tokens = prefill_only_token_budget or max_num_batched_tokens
        self._clock = clock
        self._max_running = min(max_num_seqs, max_num_batched_tokens)
        self._max_waiting = max_waiting
        self._max_known = max_waiting + max_num_seqs
        self._is_complete = is_complete
        self._blocks = BlockTables(num_blocks, block_size, prefix_caching)
        self._drafting = Drafting(drafter, self._blocks, max_num_batched_tokens)
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []  # most urgent first
        self._fair = FairShare(self._running, self._waiting, self._blocks, self._max_running)
        self._sequences: dict[int, Sequence] = {}
        self._num_known: Counter[str] = Counter()
        """Sequences of each tenant."""
        self._num_arrived = 0
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_preemptions = 0

    def resize(self, max_num_batched_tokens: int, prefill_only_token_budget: int) -> None:
        """Give the next steps another number of tokens, no fewer than there are seats."""
        assert max_num_batched_tokens >= self._max_running, "each running sequence gets its next token in every step"
        self._step_tokens, self._quiet_step_tokens = max_num_batched_tokens, prefill_only_token_budget
        self._drafting.resize(max_num_batched_tokens)

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence and number its arrival.

        Raises RequestError if it could never be computed or has nothing left to generate, EngineUnavailable if queue and seats are
        full and its tenant has its share of them. Seats count although they may be empty: all that a dead core had running comes back
        at once. One that has output goes on: it had a place before others came.
        """
        assert sequence.seq_id not in self._sequences
        if sequence.num_tokens > self._blocks.capacity_tokens:
            raise RequestError(
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt must have at most {self._blocks.capacity_tokens} tokens, the size of the KV cache, got {sequence.num_tokens}",
                "messages",
            )
        if not sequence.prompt_ids or len(sequence.output_ids) >= sequence.max_tokens:
            raise RequestError(
                ErrorCode.INVALID_VALUE, "the sequence has no prompt or nothing left to generate", "max_tokens"
            )
        if not sequence.output_ids and not has_place(self._num_known, sequence.tenant, 1, self._max_known):
            raise queue_full(self._max_waiting)
        self._num_known[sequence.tenant] += 1
        self._num_arrived += 1
        sequence.arrival = self._num_arrived
        sequence.waits_since = self._clock()
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
        tokens = self._step_tokens - len(decodes) if decodes else self._quiet_step_tokens
        drafted: list[Chunk] = []
        if self._drafting and decodes:
            decodes, drafted = self._drafting.split(decodes, tokens, len(self._running))
            tokens -= sum(len(chunk.draft_ids) for chunk in drafted)
        tokens = max(tokens, self._step_tokens // PROMPT_SHARE)
        budget = PromptBudget(tokens, self._step_tokens, self._tenants_with_prompts(prefills))
        grants: dict[Sequence, int] = {}
        for sequence in prefills:
            num_missing = sequence.num_tokens - sequence.num_computed
            grants[sequence] = budget.offer(sequence, num_missing)
            budget.take(sequence, grants[sequence], num_missing)
        decodes += self._seat_waiting(grants, budget)
        self._hand_out_rest(grants, budget)
        if budget.is_shared:
            budget.lift()
            decodes += self._seat_waiting(grants, budget)
        if not decodes and not drafted and not any(grants.values()):
            return None
        prompts = _prompt_chunks(grants)
        if self._drafting and prompts:
            prompts = [
                chunk for part in self._drafting.split(prompts, budget.left, len(self._running)) for chunk in part
            ]
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
                sequence.is_owed = False
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
        if (
            reason != "stop"
            and sequence.request.grammar
            and self._is_complete is not None
            and self._is_complete(sequence)
        ):
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
        if any(sequence.block_ids or sequence.num_computed for sequence in self._waiting):
            return "a waiting sequence holds blocks or computed tokens"
        if self._num_known != Counter(sequence.tenant for sequence in self._sequences.values()):
            return "the sequences of a tenant are miscounted"
        return self._blocks.check_integrity(self._sequences.keys(), self._running)

    def _plan_running(self) -> tuple[list[Chunk], list[Sequence]]:
        """Return the chunks of running sequences that lack one token, and the running sequences that lack more."""
        block_size = self._blocks.block_size
        for sequence in tuple(self._running):
            is_full = sequence.num_tokens > len(sequence.block_ids) * block_size
            if is_full and sequence.status is SequenceStatus.RUNNING:
                self._append_block(sequence)
        decodes: list[Chunk] = []
        prefills: list[Sequence] = []
        for sequence in self._running:
            start = sequence.num_computed
            if len(sequence.prompt_ids) + len(sequence.output_ids) - start > 1:
                prefills.append(sequence)
            else:
                decodes.append(Chunk(sequence, start, 1, sequence.embed is None))
        return decodes, prefills

    def _make_room(self) -> None:
        """Preempt for the waiting sequence whose turn it is, and seat it: whoever has worse priority, or who has more than an equal share.

        So for one in a step, and for the first of every tenant that has nothing running.
        NOTE: it is seated at once. Who has made room may hold the least from then on, and would be the first to get it back.
        """
        sequence = self._head()
        while sequence is not None and (victims := self._victims(sequence)):
            for victim in victims:
                self._preempt(victim)
            is_seated = self._seat(sequence, self._blocks.match(sequence)[1])
            assert is_seated, "nobody is preempted in vain"
            sequence = self._head()
            if sequence is not None and self._fair.part(sequence.tenant, sequence.priority):
                return

    def _victims(self, sequence: Sequence) -> list[Sequence]:
        """Who makes room for a waiting sequence, if that helps it: not while another computes what it will find in the cache."""
        is_due = len(self._num_known) > 1 and self._clock() - sequence.waits_since >= FAIR_WAIT_S
        if not self._running or not (is_due or self._running[-1].priority > sequence.priority):
            return []
        victims = self._fair.victims(sequence, is_due=is_due)
        return [] if victims and self._is_being_computed_for(sequence) else victims

    def _is_being_computed_for(self, sequence: Sequence) -> bool:
        """Whether a prompt that is as urgent computes the next block that a waiting sequence may find."""
        digests, matched = self._blocks.match(sequence)
        if len(matched) == self._blocks.num_matchable(sequence):
            return False
        rests = (
            (other, other.num_tokens - other.num_computed)
            for other in self._running
            if other.priority <= sequence.priority
        )
        return digests[len(matched)] in self._digests_in_progress(rest for rest in rests if rest[1] > 1)

    def _head(self) -> Sequence | None:
        """The waiting sequence whose turn it is."""
        return next(self._waiting.in_turn(1, self._fair.part), None)

    def _may_seat(self) -> bool:
        """Whether a waiting sequence could get a seat, an empty one or that of another sequence."""
        if not self._waiting or not self._running:
            return bool(self._waiting)
        if len(self._running) < self._max_running:
            return True
        sequence = self._head()
        return sequence is not None and (
            self._running[-1].priority > sequence.priority or bool(self._victims(sequence))
        )

    def _append_block(self, sequence: Sequence) -> None:
        """Give a running sequence one more block, unless it is itself preempted for want of one.

        NOTE: nothing has been planned for anybody yet. A sequence that runs alone finds a block: it is within the capacity, and nobody
        else holds any.
        """
        while not self._blocks.num_free:
            self._preempt(self._fair.block_giver())
            if sequence.status is SequenceStatus.PREEMPTED:
                return
        self._blocks.add(sequence)

    def _preempt(self, victim: Sequence) -> None:
        self._running.remove(victim)
        self._blocks.release(victim)
        victim.num_computed = 0
        victim.status = SequenceStatus.PREEMPTED
        victim.is_owed = True
        victim.waits_since = self._clock()
        self._waiting.add(victim)
        self._fair.forget(victim.tenant)
        self._num_preemptions += 1

    def _tenants_with_prompts(self, prefills: list[Sequence]) -> dict[str, int]:
        """The tenants whose prompts this step might compute, and the best priority of those."""
        wanting = self._waiting.best_priorities() if len(self._running) < self._max_running else {}
        for sequence in prefills:
            wanting[sequence.tenant] = min(sequence.priority, wanting.get(sequence.tenant, sequence.priority))
        return wanting

    def _seat_waiting(self, grants: dict[Sequence, int], budget: PromptBudget) -> list[Chunk]:
        """Seat waiting sequences and add what they may compute of their prompts to `grants`; return the chunks of those that lack one.

        Nobody overtakes a sequence for which there are no blocks. A sequence whose next block is computed by another one in this
        very step is passed over: in the next step it will find that block in the cache.
        """
        decodes: list[Chunk] = []
        if not budget.left or not self._waiting:
            return decodes
        in_progress = self._digests_in_progress(grants.items())
        for sequence in self._waiting.in_turn(self._max_running - len(self._running), self._fair.part):
            if not budget.left:
                break
            digests, matched = self._blocks.match(sequence)
            if len(matched) < self._blocks.num_matchable(sequence) and digests[len(matched)] in in_progress:
                continue
            num_missing = sequence.num_tokens - len(matched) * self._blocks.block_size
            num_tokens = budget.offer(sequence, num_missing)
            if not num_tokens:
                continue
            if not self._seat(sequence, matched):
                break
            budget.take(sequence, num_tokens, num_missing)
            if num_missing == 1:
                decodes.append(Chunk(sequence, sequence.num_computed, 1, sequence.embed is None))
                continue
            grants[sequence] = num_tokens
            in_progress |= self._digests_in_progress([(sequence, num_tokens)])
        return decodes

    def _hand_out_rest(self, grants: dict[Sequence, int], budget: PromptBudget) -> None:
        """Let prompts have what their shares have left, in the same order."""
        for sequence, num_tokens in grants.items():
            grants[sequence] = num_tokens + budget.take_rest(sequence.num_tokens - sequence.num_computed - num_tokens)

    def _digests_in_progress(self, grants: Iterable[tuple[Sequence, int]]) -> set[bytes]:
        """Collect the digests of the blocks that these grants fill."""
        return {
            digest for sequence, num_tokens in grants for digest in self._blocks.digests_filled(sequence, num_tokens)
        }

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
        self._fair.forget(sequence.tenant)
        if sequence.num_cached is None:
            sequence.num_cached = min(sequence.num_computed, len(sequence.prompt_ids))
            self._num_prompt_tokens += len(sequence.prompt_ids)
            self._num_cached_tokens += sequence.num_cached
        return True

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
            self._fair.forget(sequence.tenant)
        else:
            self._waiting.remove(sequence)
        self._blocks.close(sequence)
        sequence.status = SequenceStatus.FINISHED
        del self._sequences[sequence.seq_id]
        self._num_known[sequence.tenant] -= 1
        if not self._num_known[sequence.tenant]:
            del self._num_known[sequence.tenant]


def _prompt_chunks(grants: dict[Sequence, int]) -> list[Chunk]:
    chunks = []
    for sequence, num_tokens in grants.items():
        is_last = sequence.num_computed + num_tokens == sequence.num_tokens
        if num_tokens:
            chunks.append(Chunk(sequence, sequence.num_computed, num_tokens, is_last and sequence.embed is None))
    return chunks
