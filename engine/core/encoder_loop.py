"""EncoderCore: the step loop of a model that generates nothing. Handle messages, plan, compute whole prompts, emit.

It speaks with the worker as EngineCore does. A step that fails ends its sequences and no others; one that loses the
device ends the core, and another one goes on with all sequences.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from time import monotonic

from engine.api.errors import EngineFailure, ErrorCode
from engine.core.link import PipeChannel
from engine.core.turns import Turns
from engine.execution.device import has_lost_device
from engine.execution.encoder_runner import EncoderRunner
from engine.messages import (
    AbortSequences,
    AddSequence,
    AnnounceSteps,
    CoreStats,
    QueryStats,
    SequenceOutput,
    Shutdown,
    StepResult,
    StepStarted,
    ToCore,
)
from engine.scheduling.whole_prompts import WholePrompts
from engine.sequence import Sequence

logger = logging.getLogger(__name__)


class EncoderCore:
    """The step loop and the prompts in it."""

    def __init__(
        self,
        prompts: WholePrompts,
        runner: EncoderRunner,
        channel: PipeChannel,
        *,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`turns` shares its processors with other cores."""
        self._prompts = prompts
        self._runner = runner
        self._channel = channel
        self._turns = turns
        self._clock = clock
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
            if self._turns is not None:
                self._turns.close()

    def _turn(self, messages: list[ToCore]) -> bool:
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
        """Compute one step and emit its results; False if there was nothing to do."""
        sequences = self._prompts.plan()
        if not sequences:
            return False
        if self._announces_steps:
            self._channel.send(StepStarted([sequence.seq_id for sequence in sequences]))
        started_at = self._clock()
        try:
            results = self._runner.results(sequences)
        except Exception as error:
            self._fail_step(sequences, error)
            return True
        outputs = [
            SequenceOutput(sequence.seq_id, [], None, "embedded", 0, started_at, vector=result)
            for sequence, result in zip(sequences, results, strict=True)
        ]
        self._channel.send(StepResult(outputs))
        return True

    def handle_messages(self, messages: list[ToCore]) -> bool:
        """Handle messages before the next step; False after Shutdown."""
        for message in messages:
            match message:
                case AddSequence():
                    self._add(message)
                case AbortSequences(seq_ids):
                    dropped = [seq_id for seq_id in seq_ids if self._prompts.abort(seq_id) is not None]
                    if dropped:
                        self._channel.send(
                            StepResult([SequenceOutput(seq_id, [], None, "aborted", 0) for seq_id in dropped])
                        )
                case QueryStats(check_integrity):
                    self._channel.send(self._stats(check_integrity))
                case AnnounceSteps():
                    self._announces_steps = True
                case Shutdown():
                    return False
        return True

    def _add(self, message: AddSequence) -> None:
        try:
            self._prompts.add(Sequence(message))
        except Exception:
            logger.exception("sequence %d cannot be taken", message.seq_id)
            self._channel.send(StepResult([SequenceOutput(message.seq_id, [], finish="failed")]))

    def _fail_step(self, sequences: list[Sequence], error: Exception) -> None:
        """End the sequences of a step. Raises EngineFailure if the device is lost."""
        logger.error("a step of %d prompts failed", len(sequences), exc_info=error)
        if has_lost_device(error):
            message = "the device has failed and computes nothing more in this process"
            raise EngineFailure(ErrorCode.ENGINE_ERROR, message) from error
        failed = [SequenceOutput(sequence.seq_id, [], None, "failed", 0) for sequence in sequences]
        self._channel.send(StepResult(failed))

    def _stats(self, check_integrity: bool) -> CoreStats:
        stats = dataclasses.replace(self._prompts.stats(), busy_us=int(self._busy_s * 1e6))
        return dataclasses.replace(stats, integrity=self._prompts.check_integrity()) if check_integrity else stats
