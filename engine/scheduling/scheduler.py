"""The scheduler: plans each step by giving a budget of tokens to sequences that have known tokens to compute.

There are no prefill and decode phases. A step
0. preempts running sequences for the waiting one whose turn it is, and starts that one: sequences of worse priority,
   and sequences of tenants above an equal share if the waiting one's tenant is below it and has waited (fair_share.py);
1. gives every running sequence that lacks one token that token. If there is no block for it, the running sequence of
   the worst priority, youngest first, is preempted;
2. lets these decodes verify drafts within a share of the budget, for which no sequence is preempted. Prompts that are
   completed in this step verify drafts too, with what is left after 5;
3. continues running prompts, those of each tenant within an equal share of what is left, or of a quarter of the budget
   if that is more (step_budget.py), but beside decodes no more than these may wait for;
4. starts waiting sequences in their turn (waiting.py), while tokens, `max_num_seqs` and blocks allow it;
5. gives what is left to the prompts that were held to their share;
6. cuts no span of tokens that see each other in both directions (whole_spans.py);
7. gives prompts more, in proportion, if there is nothing else in it and all go on: it can be cut between layers.

A sequence takes the blocks for all its known tokens when it starts, so only decodes can run out of blocks, and long
prompts in layers with windows, which get theirs on the way (blocks.py). A preempted one releases its blocks and later
computes again what the prefix cache has lost. A sequence whose next blocks are in the spill file is not computed until
they have been copied back, so many before each step (spilled_blocks.py). While a step that is cut is in flight, its
sequences are in no other plan, are not preempted and keep their blocks, aborted or not. Method: Orca (iteration-level
scheduling), Sarathi-Serve (chunked prefill, https://arxiv.org/abs/2403.02310), vLLM (https://arxiv.org/abs/2309.06180).
"""

from __future__ import annotations

import time
from bisect import insort
from collections import Counter
from collections.abc import Callable

from engine.api.errors import ErrorCode, RequestError
from engine.attention.cache_groups import CacheGroups
from engine.messages import CoreStats
from engine.scheduling.blocks import BlockTables
from engine.scheduling.fair_share import FAIR_WAIT_S, FairShare
from engine.scheduling.spilled_blocks import BlockFile
from engine.scheduling.step_budget import (
    DRAFT_SHARE,
    MIN_PROMPT_TOKENS,
    PROMPT_SHARE,
    Drafter,
    PromptBudget,
    add_drafts,
)
from engine.scheduling.waiting import WaitingQueue, check_place, urgency
from engine.scheduling.whole_spans import check_spans, end_of_least_chunk, keep_whole
from engine.sequence import Chunk, Finished, Sequence, SequenceStatus, StepPlan


class Scheduler:
    """The owner of the waiting queue, the running sequences and the block tables. Call `advance` after each `plan`.

    One plan may be in flight (`hold`) while others are made and computed.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        max_waiting: int,
        prefix_caching: bool,
        groups: CacheGroups | None = None,
        file: BlockFile | None = None,
        prefill_only_token_budget: int = 0,
        cut_step_tokens: int = 0,
        mixed_step_tokens: int = 0,
        drafter: Drafter | None = None,
        is_complete: Callable[[Sequence], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`groups`: of layers, one unless given. `file`: for evicted blocks. `is_complete`: an answer can only end now.

        `prefill_only_token_budget`: that of a step without decodes. `cut_step_tokens`: the budget of 7, 0: none.
        `mixed_step_tokens`: the most of a step with decodes, if it has more than MIN_PROMPT_TOKENS of prompts; 0: no
        bound of its own.
        """
        self._max_num_batched_tokens = max_num_batched_tokens
        self._prefill_only_token_budget = prefill_only_token_budget or max_num_batched_tokens
        self._cut_step_tokens = cut_step_tokens
        self._mixed_step_tokens = mixed_step_tokens
        self._clock = clock
        self._max_running = min(max_num_seqs, max_num_batched_tokens)
        self._max_waiting = max_waiting
        self._max_num_seqs = max_num_seqs
        self._is_complete = is_complete
        self._longest_chunk = groups.chunk_tokens if groups is not None else 0
        self._blocks = BlockTables(num_blocks, block_size, prefix_caching, groups, file)
        self._num_restorable = 0
        """Blocks that may still be copied back before this step."""
        self._drafter = drafter
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []
        """Most urgent first."""
        self._in_flight: dict[Sequence, int] = {}
        """The sequences of the step in flight, also aborted ones, and the tokens that it computes of each."""
        self._plan_in_flight: StepPlan | None = None
        self._fair = FairShare(self._running, self._waiting, self._blocks, self._max_running, self._in_flight.keys())
        self._sequences: dict[int, Sequence] = {}
        self._num_known: Counter[str] = Counter()
        """Sequences, by tenant."""
        self._num_arrived = 0
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_preemptions = 0
        self._num_generated_tokens = 0

    def resize(
        self,
        max_num_batched_tokens: int,
        prefill_only_token_budget: int,
        cut_step_tokens: int = 0,
        mixed_step_tokens: int = 0,
    ) -> None:
        """Set the budgets of the next steps, no smaller than the largest number of running sequences."""
        assert max_num_batched_tokens >= self._max_running, "each running sequence gets its next token in every step"
        self._max_num_batched_tokens = max_num_batched_tokens
        self._prefill_only_token_budget = prefill_only_token_budget
        self._cut_step_tokens = cut_step_tokens
        self._mixed_step_tokens = mixed_step_tokens

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence and number its arrival.

        Raises RequestError if it can never be computed or has nothing left to generate, EngineUnavailable as
        `check_place`. A sequence with output is always taken: it had its place before.
        """
        assert sequence.seq_id not in self._sequences
        most, given = self._blocks.capacity_tokens, sequence.num_tokens
        if given > most:
            message = f"the prompt must have at most {most} tokens, the size of the KV cache, got {given}"
            raise RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, "messages")
        check_spans(sequence.request.media, self._longest_chunk)
        if not sequence.prompt_ids or len(sequence.output_ids) >= sequence.max_tokens:
            message = "the sequence has no prompt or nothing left to generate"
            raise RequestError(ErrorCode.INVALID_VALUE, message, "max_tokens")
        if not sequence.output_ids:
            check_place(self._num_known, sequence.tenant, 1, self._max_waiting, self._max_num_seqs)
        self._num_known[sequence.tenant] += 1
        self._num_arrived += 1
        sequence.arrival = self._num_arrived
        sequence.waits_since = self._clock()
        self._sequences[sequence.seq_id] = sequence
        self._blocks.open(sequence)
        self._waiting.arrive(sequence)

    def abort(self, seq_id: int) -> Sequence | None:
        """End a sequence now, also between plan and advance; return it, or None if the id is unknown."""
        sequence = self._sequences.get(seq_id)
        if sequence is not None:
            self._end(sequence)
        return sequence

    @property
    def is_restoring(self) -> bool:
        """Return True if there is work although `plan` has found nothing to compute."""
        return any(sequence.is_restoring for sequence in self._running)

    def plan(self) -> StepPlan | None:
        """Plan one step, as numbered in the module's docstring; None if there is nothing to compute."""
        self._num_restorable = self._blocks.spilled.most_restored if self._blocks.spilled else 0
        self._make_room()
        decodes, prefills = self._plan_running()
        tokens = self._max_num_batched_tokens - len(decodes) if decodes else self._prefill_only_token_budget
        drafted: list[Chunk] = []
        if self._drafter and decodes:
            decodes, drafted = self._add_drafts(self._drafter, decodes, tokens)
            tokens -= sum(len(chunk.draft_ids) for chunk in drafted)
        tokens = max(tokens, self._max_num_batched_tokens // PROMPT_SHARE)
        if self._mixed_step_tokens and (decodes or drafted):
            num_decoded = sum(chunk.num_positions for chunk in decodes + drafted)
            tokens = min(tokens, max(MIN_PROMPT_TOKENS, self._mixed_step_tokens - num_decoded))
        budget = PromptBudget(tokens, self._max_num_batched_tokens, self._tenants_with_prompts(prefills))
        grants: dict[Sequence, int] = {}
        for sequence in prefills:
            num_missing = sequence.num_tokens - sequence.num_computed
            grants[sequence] = min(budget.offer(sequence, num_missing), sequence.num_placed - sequence.num_computed)
            budget.take(sequence, grants[sequence], num_missing)
        decodes += self._start_waiting(grants, budget)
        for sequence, num_tokens in grants.items():
            num_placed = min(sequence.num_tokens, sequence.num_placed)
            grants[sequence] = num_tokens + budget.take_rest(num_placed - sequence.num_computed - num_tokens)
        if budget.is_shared:
            budget.is_shared = False
            decodes += self._start_waiting(grants, budget)
        keep_whole(grants)
        if not decodes and not drafted and not any(grants.values()):
            return None
        if not decodes and not drafted and self._plan_in_flight is None:
            self._enlarge(grants)
        prompts = _prompt_chunks(grants)
        if self._drafter and prompts:
            plain, ended = self._add_drafts(self._drafter, prompts, budget.left)
            prompts = plain + ended
        plan = StepPlan(tuple(decodes + drafted + prompts))
        self._blocks.save_before(plan.chunks)
        return plan

    def hold(self, plan: StepPlan) -> None:
        """Put a plan in flight until `advance` has it. Its sequences stay as they are, and out of other plans."""
        assert self._plan_in_flight is None
        self._plan_in_flight = plan
        self._in_flight.update({chunk.sequence: chunk.num_tokens for chunk in plan.chunks})

    def plan_ahead(self, plan: StepPlan) -> StepPlan | None:
        """Plan the step after a plan of decodes before the tokens of that plan are known; None if it depends on them.

        Every sequence that still runs gets one token more, except those that the plan's own token brings to their
        limit. `advance` skips a sequence that turns out to have ended. No sequence is started or preempted.
        """
        assert self._blocks.spilled is None, "blocks that this step sees would be saved too late"
        running = [chunk.sequence for chunk in plan.chunks if chunk.sequence.status is SequenceStatus.RUNNING]
        if len(running) != len(self._running) or self._may_start_waiting():
            return None
        chunks = []
        for sequence in running:
            num_tokens = sequence.num_tokens + 1
            if len(sequence.output_ids) + 1 >= sequence.max_tokens or num_tokens > self._blocks.capacity_tokens:
                continue
            if num_tokens > sequence.num_placed:
                self._extend(sequence, num_tokens)
                if num_tokens > sequence.num_placed:
                    return None
            chunks.append(Chunk(sequence, num_tokens - 1, 1, True))
        return StepPlan(tuple(chunks)) if chunks else None

    def advance(self, plan: StepPlan, sampled: dict[int, list[int]]) -> list[Finished]:
        """Record that a step has been computed: append tokens, add full blocks to the prefix cache, and end sequences.

        `sampled`: the new token ids by `seq_id`. Of several tokens all but the last must be drafts of the chunk. A
        sequence whose chunk samples but that is not in `sampled` has failed; its blocks leave the prefix cache, as
        their content may be the cause. Chunks of aborted sequences are skipped.
        """
        self._num_steps += 1
        if plan is self._plan_in_flight:
            self._land()
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
        """Return why a sequence ends with its last token, or None; `advance` ends it there."""
        reason = sequence.end_reason(self._blocks.capacity_tokens)
        if reason != "stop" and sequence.request.grammar and self._is_complete and self._is_complete(sequence):
            return "complete"
        return reason

    def stats(self) -> CoreStats:
        spilled = self._blocks.spilled
        return CoreStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_free_blocks=self._blocks.num_free,
            num_blocks=self._blocks.num_blocks,
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_preemptions=self._num_preemptions,
            num_spill_places=spilled.num_places if spilled else 0,
            num_used_spill_places=spilled.num_held if spilled else 0,
            num_spilled_blocks=spilled.num_spilled if spilled else 0,
            num_restored_blocks=spilled.num_restored if spilled else 0,
            num_lost_blocks=spilled.num_lost if spilled else 0,
            num_generated_tokens=self._num_generated_tokens,
        )

    def check_integrity(self) -> str:
        """Verify the block tables and the counts of sequences; return the first error, or ''."""
        for sequence in self._running:
            if sequence.num_computed > sequence.num_placed:
                return f"sequence {sequence.seq_id} has more computed tokens than room in its blocks"
        if len(self._running) + len(self._waiting) != len(self._sequences):
            return "a sequence is neither running nor waiting, or both"
        aborted = self._aborted_in_flight()
        if any(sequence.block_ids or sequence.num_computed for sequence in self._waiting):
            return "a waiting sequence holds blocks or computed tokens"
        if self._num_known != Counter(sequence.tenant for sequence in self._sequences.values()):
            return "the sequences of a tenant are miscounted"
        known = self._sequences.keys() | {sequence.seq_id for sequence in aborted}
        return self._blocks.check_integrity(known, self._running + aborted)

    def _add_drafts(self, drafter: Drafter, chunks: list[Chunk], tokens: int) -> tuple[list[Chunk], list[Chunk]]:
        budget = min(tokens, self._max_num_batched_tokens // DRAFT_SHARE)
        plain, drafted = add_drafts(drafter, self._blocks, chunks, budget, len(self._running))
        if self._blocks.has_windows:
            for chunk in drafted:
                self._fair.forget(chunk.sequence.tenant)
        return plain, drafted

    def _plan_running(self) -> tuple[list[Chunk], list[Sequence]]:
        """Return the chunks of running sequences that lack one token, and the running sequences that lack more."""
        for sequence in tuple(self._running):
            is_full = len(sequence.prompt_ids) + len(sequence.output_ids) > sequence.num_placed
            if is_full and sequence.status is SequenceStatus.RUNNING and sequence not in self._in_flight:
                self._place_next(sequence)
        decodes: list[Chunk] = []
        prefills: list[Sequence] = []
        for sequence in self._running:
            if sequence in self._in_flight or (sequence.is_restoring and not self._restore(sequence)):
                continue
            start = sequence.num_computed
            if len(sequence.prompt_ids) + len(sequence.output_ids) - start > 1:
                prefills.append(sequence)
            else:
                decodes.append(Chunk(sequence, start, 1, sequence.embed is None))
        return decodes, prefills

    def _make_room(self) -> None:
        """Preempt running sequences for the waiting one whose turn it is, and start that one.

        Repeats for the first sequence of every tenant that has nothing running; otherwise at most once a step.
        NOTE: it starts at once, or the preempted tenant, now perhaps with the smallest share, would get the room back.
        """
        sequence = self._head()
        while sequence is not None and (victims := self._victims(sequence)):
            for victim in victims:
                self._preempt(victim)
            has_started = self._start(sequence, self._blocks.match(sequence))
            assert has_started, "no sequence is preempted in vain"
            sequence = self._head()
            if sequence is not None and self._fair.dominant_share(sequence.tenant, sequence.priority):
                return

    def _victims(self, sequence: Sequence) -> list[Sequence]:
        """Return the sequences to preempt for a waiting one; none while a block is computed that it can then share."""
        is_due = len(self._num_known) > 1 and self._clock() - sequence.waits_since >= FAIR_WAIT_S
        if not self._running or not (is_due or self._running[-1].priority > sequence.priority):
            return []
        victims = self._fair.victims(sequence, is_due=is_due)
        if not victims:
            return []
        urgent = [other for other in self._running if other.priority <= sequence.priority]
        return [] if self._blocks.is_being_computed_for(sequence, urgent) else victims

    def _head(self) -> Sequence | None:
        """Return the waiting sequence whose turn it is."""
        return next(self._waiting.in_turn(1, self._fair.dominant_share), None)

    def _may_start_waiting(self) -> bool:
        """Return True if a waiting sequence could start, also in place of a running one."""
        if not self._waiting or len(self._running) < self._max_running:
            return bool(self._waiting)
        sequence = self._head()
        if sequence is None:
            return False
        return self._running[-1].priority > sequence.priority or bool(self._victims(sequence))

    def _place_next(self, sequence: Sequence) -> None:
        """Give a running sequence blocks for its next token at least; it may itself be preempted if there are none.

        NOTE: no chunk has been planned yet. A sequence that runs alone always finds blocks within the capacity.
        """
        self._extend(sequence, sequence.num_tokens)
        while sequence.num_placed < end_of_least_chunk(sequence):
            self._preempt(self._fair.victim_for_block())
            if sequence.status is SequenceStatus.PREEMPTED:
                return
            self._extend(sequence, sequence.num_tokens)

    def _extend(self, sequence: Sequence, num_tokens: int) -> None:
        self._blocks.extend(sequence, num_tokens)
        if self._blocks.has_windows:
            self._fair.forget(sequence.tenant)

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
        """Return the tenants whose prompts this step might compute, and the best priority of these."""
        tenants = self._waiting.best_priorities() if len(self._running) < self._max_running else {}
        for sequence in prefills:
            tenants[sequence.tenant] = min(sequence.priority, tenants.get(sequence.tenant, sequence.priority))
        return tenants

    def _start_waiting(self, grants: dict[Sequence, int], budget: PromptBudget) -> list[Chunk]:
        """Start waiting sequences, and add their prompt tokens to `grants`; return chunks of those that lack one token.

        No sequence overtakes one for which there are no blocks. A sequence whose next block another one computes in
        this step or in the one in flight is passed over: in the next step it will find that block in the cache.
        """
        decodes: list[Chunk] = []
        if not budget.left or not self._waiting:
            return decodes
        in_progress = self._blocks.digests_filled_by([*grants.items(), *self._in_flight.items()])
        in_progress |= {self._blocks.span_digest(other) for other in self._running if other.is_restoring}
        for sequence in self._waiting.in_turn(self._max_running - len(self._running), self._fair.dominant_share):
            if not budget.left:
                break
            matched = self._blocks.match(sequence)
            if self._blocks.next_digest(sequence, matched) in in_progress:
                continue
            num_missing = sequence.num_tokens - self._blocks.num_known(sequence, matched)
            num_tokens = budget.offer(sequence, num_missing)
            if not num_tokens:
                continue
            if not self._start(sequence, matched):
                break
            if sequence.is_restoring and not self._restore(sequence):
                in_progress.add(self._blocks.span_digest(sequence))
                continue
            num_missing = sequence.num_tokens - sequence.num_computed
            num_tokens = min(num_tokens, num_missing, sequence.num_placed - sequence.num_computed)
            budget.take(sequence, num_tokens, num_missing)
            if num_missing == 1:
                decodes.append(Chunk(sequence, sequence.num_computed, 1, sequence.embed is None))
                continue
            grants[sequence] = num_tokens
            in_progress |= self._blocks.digests_filled_by([(sequence, num_tokens)])
        return decodes

    def _enlarge(self, grants: dict[Sequence, int]) -> None:
        """Give the prompts of a step the tokens of a cut one, each in proportion, unless one of them ends in it.

        NOTE: a prompt that ends should not wait for those that go on. Mostly none ends because there is one alone.
        """
        if any(sequence.whole_spans for sequence in grants):
            return
        rooms = {sequence: min(sequence.num_tokens, sequence.num_placed) - sequence.num_computed for sequence in grants}
        total = sum(grants.values())
        if total >= self._cut_step_tokens or any(
            sequence.num_computed + num_tokens == sequence.num_tokens for sequence, num_tokens in grants.items()
        ):
            return
        for sequence, num_tokens in grants.items():
            grants[sequence] = min(rooms[sequence], num_tokens * self._cut_step_tokens // total)

    def _land(self) -> None:
        """End the flight of a plan; release the blocks of sequences that were aborted meanwhile."""
        for sequence in self._aborted_in_flight():
            self._blocks.close(sequence)
        self._in_flight.clear()
        self._plan_in_flight = None

    def _aborted_in_flight(self) -> list[Sequence]:
        return [sequence for sequence in self._in_flight if sequence.status is SequenceStatus.FINISHED]

    def _start(self, sequence: Sequence, matched: list[int]) -> bool:
        """Start a waiting sequence with blocks for its known tokens, `matched` first; False if there are too few.

        One span per running sequence stays free for the next tokens, or a new prompt would soon be preempted again.
        """
        if not self._blocks.has_room(sequence, matched, num_reserved=len(self._running)):
            return False
        self._waiting.remove(sequence)
        self._blocks.take(sequence, matched)
        sequence.num_computed = self._blocks.num_matched(matched)
        sequence.status = SequenceStatus.RUNNING
        insort(self._running, sequence, key=urgency)
        self._fair.forget(sequence.tenant)
        if sequence.num_cached is None:
            sequence.num_cached = min(sequence.num_computed, len(sequence.prompt_ids))
            self._num_prompt_tokens += len(sequence.prompt_ids)
            self._num_cached_tokens += sequence.num_cached
        sequence.is_restoring = self._blocks.has_spilled(sequence)
        return True

    def _restore(self, sequence: Sequence) -> bool:
        """Copy back what the spill file has of a sequence's next spans; False if the bound of a step leaves some."""
        num_blocks = self._blocks.restore(sequence, self._num_restorable)
        self._num_restorable -= num_blocks
        if sequence.num_cached is not None and not sequence.is_owed:
            num_cached = min(sequence.num_computed, len(sequence.prompt_ids))
            self._num_cached_tokens += num_cached - sequence.num_cached
            sequence.num_cached = num_cached
        sequence.is_restoring = self._blocks.has_spilled(sequence)
        return not sequence.is_restoring

    def _append(self, sequence: Sequence, token_ids: list[int]) -> str | None:
        """Append sampled tokens up to the one that ends the sequence; return why it ended, or None."""
        output_ids = sequence.output_ids
        for token_id in token_ids:
            output_ids.append(token_id)
            self._num_generated_tokens += 1
            if reason := self.end_reason(sequence):
                return reason
        return None

    def _end(self, sequence: Sequence) -> None:
        if sequence.status is SequenceStatus.RUNNING:
            self._running.remove(sequence)
            self._fair.forget(sequence.tenant)
        else:
            self._waiting.remove(sequence)
        if sequence not in self._in_flight:
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
