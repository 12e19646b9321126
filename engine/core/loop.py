"""EngineCore: the step loop. Handle messages of the worker, plan, forward, sample, advance, emit; and again.

A step of prompts alone may take several turns of the loop, with steps of other sequences in between.

Its only I/O is the channel, on which it waits when there is nothing to compute. A step that fails ends the sequences of
that step and no others. A step that loses the device ends the core; another core then goes on with all sequences.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from time import monotonic

import torch

from engine.api.errors import EngineFailure, ErrorCode
from engine.core.link import PipeChannel
from engine.core.turns import Turns
from engine.decoding.drafter import LookupDrafter
from engine.decoding.verify import draw_tokens, num_accepted
from engine.execution.adapters import CoreAdapters
from engine.execution.cut_steps import CutStep, CutSteps
from engine.execution.device import has_lost_device
from engine.execution.media import CoreMedia
from engine.execution.overlap import InFlightStep, OverlappedSteps
from engine.execution.prompts import PromptResults
from engine.execution.runner import ModelRunner
from engine.execution.token_budget import AdaptiveTokenBudget
from engine.messages import (
    AbortSequences,
    AddAdapter,
    AddSequence,
    AnnounceSteps,
    CoreStats,
    DefineGrammar,
    DefineMedia,
    ForgetGrammars,
    ForgetMedia,
    QueryStats,
    RemoveAdapter,
    SequenceOutput,
    Shutdown,
    StepResult,
    StepStarted,
    ToCore,
)
from engine.sampling.sampler import SampledToken, Sampler
from engine.scheduling.scheduler import Scheduler
from engine.sequence import Chunk, Sequence, SequenceStatus, StepPlan
from engine.structured.core_grammars import CoreGrammars

logger = logging.getLogger(__name__)


class EngineCore:
    """The step loop and the sequences in it."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        sampler: Sampler,
        channel: PipeChannel,
        *,
        drafter: LookupDrafter,
        grammars: CoreGrammars,
        adapters: CoreAdapters,
        overlap: OverlappedSteps | None = None,
        cuts: CutSteps | None = None,
        turns: Turns | None = None,
        token_budget: AdaptiveTokenBudget | None = None,
        media: CoreMedia | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`drafter`, `grammars`: the same that the scheduler uses. `overlap` begins steps early, on a device.
        `cuts` leaves long steps between two layers, on a CPU. `turns` shares its processors with other cores.

        `token_budget` adapts the tokens per step, unless their number is configured. `media`: of a model that sees.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._drafter = drafter
        self._grammars = grammars
        self._adapters = adapters
        self._overlap = overlap
        self._token_budget = token_budget
        self._in_flight: InFlightStep | None = None
        """A step that was launched before the tokens of the step before were known."""
        self._cuts = cuts
        self._cut: CutStep | None = None
        """A step that is computed layer by layer."""
        self._turns = turns
        self._media = media or CoreMedia(None)
        self._held: list[AddSequence] = []
        """Sequences whose grammars, adapters or media are not ready yet."""
        self._channel = channel
        self._clock = clock
        self._new: dict[int, float | None] = {}
        """Sequences that have no output yet, with the time of their first step, if that has begun."""
        self._is_idle = True
        self._announces_steps = False
        self._turn_began_at: float | None = None
        self._busy_s = 0.0

    @property
    def turn_s(self) -> float:
        """How long the present turn of the loop has lasted; 0 between two. Thread-safe."""
        began_at = self._turn_began_at
        return 0.0 if began_at is None else monotonic() - began_at

    def run(self) -> None:
        """Serve until Shutdown."""
        try:
            while self._turn(self._channel.receive(block=self._is_idle)):
                self._turn_began_at = None
        finally:
            self._media.close()
            if self._turns is not None:
                self._turns.close()

    def _turn(self, messages: list[ToCore]) -> bool:
        """Handle messages and compute a step; False after Shutdown."""
        began_at = self._turn_began_at = monotonic()
        is_serving = self.handle_messages(messages)
        if is_serving:
            if self._turns is not None:
                self._turns.begin()
            self._is_idle = not self.step()
            if not self._is_idle:
                self._busy_s += monotonic() - began_at
            if self._turns is not None and self._is_idle:
                self._turns.leave()
        return is_serving

    def step(self) -> bool:
        """Compute one step, or a part of one, and emit its results; False if there was nothing to do.

        Go on with the media that sequences wait for, too (execution/media.py): text streams beside images.
        """
        began_at = monotonic()
        has_computed = self._step()
        self._media.compute_beside(monotonic() - began_at)
        return has_computed

    def _step(self) -> bool:
        has_ended = self._media.end_encoded()
        if self._announces_steps and not self._media.is_encoding and (seq_ids := self._media.next_seq_ids):
            self._channel.send(StepStarted(seq_ids))
        has_encoded = self._media.encode_next() or has_ended
        if self._held:
            held, self._held = self._held, []
            for message in held:
                self._add_or_hold(message)
        if self._overlap is not None and self._in_flight is not None:
            self._announce(self._in_flight.plan)
            return self._step_overlapped(self._overlap, self._in_flight.plan)
        if self._cut is not None:
            self._go_on(self._cut)
            return True
        plan = self._scheduler.plan()
        if plan is None:
            if self._media.is_encoding and not has_encoded:
                self._media.wait()
            elif self._held and not has_encoded:
                self._wait_for_held()
            is_waiting = self._media.is_encoding or bool(self._held) or self._scheduler.is_restoring
            return has_encoded or is_waiting
        if self._new:
            self._record_start(plan)
        if self._cuts is not None and self._cuts.takes(plan):
            self._cut = self._cuts.begin(plan)
            self._scheduler.hold(plan)
            if self._scheduler.is_restoring:
                self._cut.announce_newcomer()
            self._go_on(self._cut)
            return True
        self._announce(plan)
        if self._overlap is not None and self._overlap.takes(plan):
            return self._step_overlapped(self._overlap, plan)
        self._compute(plan)
        return True

    def _compute(self, plan: StepPlan, cut: CutStep | None = None) -> None:
        """Compute a step and emit its results. `cut`: its layers have been computed."""
        budget = self._token_budget
        if budget is not None:
            budget.begin()
        try:
            chunks = [chunk for chunk in plan.chunks if chunk.samples and self._is_running(chunk)]
            self._grammars.start_filling([chunk.sequence for chunk in chunks])
            logits = self._runner.forward(plan) if cut is None else cut.logits()
            drawn = draw_tokens(self._draw, logits, chunks, self._scheduler.end_reason)
            prompts = self._runner.prompt_results(plan)
        except Exception as error:
            self._fail_step(plan, error)
            return
        if budget is not None and not prompts.scores and budget.end(plan, 0.0 if cut is None else cut.seconds):
            self._scheduler.resize(
                budget.max_num_batched_tokens,
                budget.prefill_only_token_budget,
                budget.cut_step_tokens,
                budget.mixed_step_tokens,
            )
        self._emit(plan, chunks, drawn, prompts)

    def _go_on(self, cut: CutStep) -> None:
        """Go on with the step in flight, first with one of other sequences if it is their turn."""
        if not any(self._is_running(chunk) for chunk in cut.plan.chunks):
            self._cut = None
            self._scheduler.advance(cut.plan, {})
            return
        if cut.is_others_turn:
            self._compute_others(cut)
        self._announce(cut.plan)
        try:
            is_over = cut.advance()
        except Exception as error:
            self._cut = None
            self._fail_step(cut.plan, error)
            return
        if is_over:
            self._cut = None
            self._compute(cut.plan, cut)

    def _compute_others(self, cut: CutStep) -> None:
        """Compute a step of sequences that are not in flight, if they have anything to compute."""
        cut.begin_turn_of_others()
        plan = self._scheduler.plan()
        if plan is not None:
            self._record_start(plan)
            self._announce(plan)
            self._compute(plan)
        if plan is not None or not self._scheduler.is_restoring:  # copies of blocks go on in the next turn
            cut.end_turn_of_others(has_computed=plan is not None)

    def _step_overlapped(self, overlap: OverlappedSteps, plan: StepPlan) -> bool:
        """Launch the next step, of no other sequences, then emit this one, which may have been launched already."""
        step, self._in_flight = self._in_flight, None
        try:
            step = step or overlap.begin(plan)
            self._in_flight = None if self._expects_drafts(plan) else overlap.follow(step)
            tokens, is_final = overlap.finish(step)
        except Exception as error:
            self._in_flight = None
            self._fail_step(plan, error)
            return True
        if not is_final:
            self._in_flight = None  # it was launched with other input tokens, and is computed again
        pairs = [(chunk, [token]) for chunk, token in zip(plan.chunks, tokens, strict=True) if self._is_running(chunk)]
        self._emit(plan, [chunk for chunk, _ in pairs], [drawn for _, drawn in pairs], PromptResults())
        return True

    def _expects_drafts(self, plan: StepPlan) -> bool:
        """Return True if a sequence may have drafts in the next step, which must then be planned."""
        if not len(self._drafter):
            return False
        sequences = [chunk.sequence for chunk in plan.chunks if self._is_running(chunk)]
        limits = [sequence.max_tokens - len(sequence.output_ids) - 1 for sequence in sequences]
        return any(
            limit > 0 and self._drafter.propose(sequence, len(plan.chunks), limit)
            for sequence, limit in zip(sequences, limits, strict=True)
        )

    def _is_running(self, chunk: Chunk) -> bool:
        """Return False for a sequence that has ended since the step was planned: by a token, or as it was aborted."""
        return chunk.sequence.status is SequenceStatus.RUNNING

    def _announce(self, plan: StepPlan) -> None:
        if self._announces_steps:
            encoded = self._media.next_seq_ids if self._media.is_encoding else []
            self._channel.send(StepStarted([*encoded, *(chunk.sequence.seq_id for chunk in plan.chunks)]))

    def _emit(
        self, plan: StepPlan, chunks: list[Chunk], drawn: list[list[SampledToken]], prompts: PromptResults
    ) -> None:
        """Advance the scheduler by the drawn tokens and send the results of the step. `chunks`: those that sample."""
        sampled = {
            chunk.sequence.seq_id: [token.token_id for token in tokens]
            for chunk, tokens in zip(chunks, drawn, strict=True)
            if not tokens[0].is_failed
        }
        reported = [
            chunk
            for chunk in plan.chunks
            if not chunk.samples and chunk.sequence.seq_id in prompts and self._is_running(chunk)
        ]
        finished = {sequence.seq_id: reason for sequence, reason in self._scheduler.advance(plan, sampled)}
        for seq_id in finished:
            self._forget(seq_id)
        outputs = [self._output(chunk, [], finished, prompts) for chunk in reported]
        outputs += [self._output(chunk, tokens, finished, prompts) for chunk, tokens in zip(chunks, drawn, strict=True)]
        if outputs:
            self._channel.send(StepResult(outputs))

    def _draw(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[SampledToken]:
        return self._sampler.sample(logits, sequences, self._grammars.bitmask(sequences))

    def _output(
        self, chunk: Chunk, tokens: list[SampledToken], finished: dict[int, str], prompts: PromptResults
    ) -> SequenceOutput:
        sequence = chunk.sequence
        prompt_logprobs = prompts.scores.get(sequence.seq_id)
        sequence.num_scored += len(prompt_logprobs or ())
        is_first = sequence.seq_id in self._new
        num_predicted = len(chunk.draft_ids) if sequence.request.draft_ids else 0
        accepted = num_accepted(chunk, tokens) if num_predicted else 0
        return SequenceOutput(
            seq_id=sequence.seq_id,
            token_ids=[token.token_id for token in tokens if not token.is_failed],
            logprobs=[token.logprobs for token in tokens if token.logprobs is not None] or None,
            finish=finished.get(sequence.seq_id),
            num_cached=sequence.num_cached if is_first else None,
            started_at=self._new.pop(sequence.seq_id, None),
            prompt_logprobs=prompt_logprobs,
            num_accepted=accepted,
            num_rejected=num_predicted - accepted,
            failed_param=tokens[0].failed_param if tokens else "",
            vector=prompts.vectors.get(sequence.seq_id),
        )

    def _forget(self, seq_id: int) -> None:
        self._sampler.remove(seq_id)
        self._drafter.remove(seq_id)
        self._grammars.remove(seq_id)
        self._adapters.remove(seq_id)
        self._media.remove(seq_id)

    def _record_start(self, plan: StepPlan) -> None:
        now = self._clock()
        for chunk in plan.chunks:
            if self._new.get(chunk.sequence.seq_id, now) is None:
                self._new[chunk.sequence.seq_id] = now

    def _fail_step(self, plan: StepPlan, error: Exception) -> None:
        """End all sequences of a plan; the loop goes on with the others. Raises EngineFailure if the device is lost."""
        logger.error("a step of %d sequences failed", len(plan.chunks), exc_info=error)
        if has_lost_device(error):
            message = "the device has failed and computes nothing more in this process"
            raise EngineFailure(ErrorCode.ENGINE_ERROR, message) from error
        outputs = [self._drop(chunk.sequence.seq_id, "failed") for chunk in plan.chunks]
        self._scheduler.advance(plan, {})
        self._channel.send(StepResult([output for output in outputs if output is not None]))

    def handle_messages(self, messages: list[ToCore]) -> bool:
        """Handle messages before the next step; False after Shutdown."""
        for message in messages:
            match message:
                case AddSequence():
                    self._adapters.expect(message.seq_id, message.adapter_id)
                    self._media.expect(message)
                    self._add_or_hold(message)
                case DefineGrammar():
                    self._grammars.define(message)
                case ForgetGrammars(keys):
                    self._grammars.forget(keys)
                case DefineMedia():
                    self._media.define(message)
                case ForgetMedia(keys):
                    self._media.forget(keys)
                case AddAdapter():
                    self._adapters.load(message)
                case RemoveAdapter(adapter_id):
                    self._adapters.forget(adapter_id)
                case AbortSequences(seq_ids):
                    dropped = [output for seq_id in seq_ids if (output := self._drop(seq_id, "aborted"))]
                    if dropped:
                        self._channel.send(StepResult(dropped))
                case QueryStats(check_integrity):
                    self._channel.send(self._stats(check_integrity))
                case AnnounceSteps():
                    self._announces_steps = True
                case Shutdown():
                    return False
        return True

    def _add_or_hold(self, message: AddSequence) -> None:
        """Add a sequence, or hold it while its grammar is built, its adapter is read or its media are encoded."""
        is_ready = self._grammars.is_ready(message.grammar) and self._adapters.is_ready(message.adapter_id)
        if is_ready and self._media.is_ready(message):
            self._add(message)
        else:
            self._held.append(message)

    def _wait_for_held(self) -> None:
        """Wait a moment for what a sequence is held for."""
        adapter_ids = [one.adapter_id for one in self._held if not self._adapters.is_ready(one.adapter_id)]
        if adapter_ids:
            self._adapters.wait_for(adapter_ids)
        else:
            self._grammars.wait_for([message.grammar for message in self._held])

    def _add(self, message: AddSequence) -> None:
        sequence = Sequence(message)
        try:
            self._media.add(sequence)
            self._scheduler.add(sequence)
            self._adapters.add(sequence)
            if sequence.embed is None:
                self._sampler.add(sequence)
                self._drafter.add(sequence)
                self._grammars.add(sequence)
        except Exception:
            logger.exception("sequence %d cannot be taken", sequence.seq_id)
            self._drop(sequence.seq_id, "failed")
            self._channel.send(StepResult([SequenceOutput(sequence.seq_id, [], finish="failed")]))
            return
        if sequence.output_ids and self._grammars.is_complete(sequence):
            self._drop(sequence.seq_id, "complete")
            self._channel.send(StepResult([SequenceOutput(sequence.seq_id, [], finish="complete")]))
            return
        self._new[sequence.seq_id] = None
        if self._cut is not None:
            self._cut.announce_newcomer()

    def _drop(self, seq_id: int, reason: str) -> SequenceOutput | None:
        """Free a sequence and return its last output; None if it is unknown."""
        self._forget(seq_id)
        held = [message for message in self._held if message.seq_id == seq_id]
        if held:
            self._held.remove(held[0])
            return SequenceOutput(seq_id, [], finish=reason)
        sequence = self._scheduler.abort(seq_id)
        if sequence is None:
            return None
        return SequenceOutput(seq_id, [], None, reason, sequence.num_cached, self._new.pop(seq_id, None))

    def _stats(self, check_integrity: bool) -> CoreStats:
        stats = dataclasses.replace(self._scheduler.stats(), busy_us=int(self._busy_s * 1e6))
        return dataclasses.replace(stats, integrity=self._scheduler.check_integrity()) if check_integrity else stats
