"""SpeechCore: the step loop of a model that writes down speech. Handle messages, take a step of one request, emit.

It speaks with the worker as EngineCore does. A step is short (a window's encoding, a token), so that requests of all
tenants go on side by side and an abort is heeded at once. A step that fails ends its request and no other; one that
loses the device ends the core, and another one goes on with all requests.
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
from engine.execution.device import has_lost_device
from engine.messages import (
    AbortSequences,
    AddSequence,
    AnnounceSteps,
    CoreStats,
    DefineMedia,
    ForgetMedia,
    QueryStats,
    SequenceOutput,
    Shutdown,
    SpokenSegment,
    StepResult,
    StepStarted,
    ToCore,
)
from engine.models.speech.model import RATE, SpeechModel, Steps
from engine.scheduling.transcriptions import Transcription, Transcriptions

logger = logging.getLogger(__name__)

SLICE_S = 0.1
"""How long one request has its way before messages are read and another one's turn comes."""


class SpeechCore:
    """The step loop and the requests in it."""

    def __init__(
        self,
        model: SpeechModel,
        queue: Transcriptions,
        channel: PipeChannel,
        *,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`turns` shares its processors with other cores."""
        self._model = model
        self._queue = queue
        self._channel = channel
        self._turns = turns
        self._clock = clock
        self._sounds: dict[str, list[DefineMedia]] = {}
        self._steps: dict[int, Steps] = {}
        self._is_idle = True
        self._announces_steps = False
        self._turn_began_at: float | None = None
        self._busy_s = 0.0
        self._num_generated = 0

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
        """Let the request whose turn it is go on for a while, and emit what it settles; False if there is none."""
        chosen = self._queue.next()
        if chosen is None:
            return False
        seq_id = chosen.seq_id
        if self._announces_steps:
            self._channel.send(StepStarted([seq_id]))
        began_at = monotonic()
        started_at = None
        segments: list[SpokenSegment] = []
        finish, language = None, ""
        try:
            if seq_id not in self._steps:
                started_at = self._clock()
                self._steps[seq_id] = self._begin(chosen)
            while not segments and monotonic() - began_at < SLICE_S:
                segments = next(self._steps[seq_id])
        except StopIteration as end:
            finish, language = "transcribed", end.value
        except Exception as error:
            self._fail(seq_id, error)
            return True
        self._queue.charge(chosen, monotonic() - began_at)
        self._num_generated += sum(len(segment.token_ids) for segment in segments)
        if finish:
            self._forget(seq_id)
        if segments or finish or started_at is not None:
            output = SequenceOutput(seq_id, [], None, finish, 0, started_at, segments=segments, language=language)
            self._channel.send(StepResult([output]))
        return True

    def handle_messages(self, messages: list[ToCore]) -> bool:
        """Handle messages before the next step; False after Shutdown."""
        for message in messages:
            match message:
                case DefineMedia():
                    self._sounds.setdefault(message.key, []).append(message)
                case ForgetMedia(keys):
                    for key in keys:
                        if not (held := self._sounds.get(key, [])):
                            continue
                        held.pop()
                        if not held:
                            del self._sounds[key]
                case AddSequence():
                    self._add(message)
                case AbortSequences(seq_ids):
                    dropped = [seq_id for seq_id in seq_ids if self._forget(seq_id)]
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
            (span,) = message.media
            sound = self._sounds[span.key][-1]
            (tensor,) = sound.tensors
            self._queue.add(Transcription(message, sound, tensor.shape[0] / RATE))
        except Exception:
            logger.exception("sequence %d cannot be taken", message.seq_id)
            self._channel.send(StepResult([SequenceOutput(message.seq_id, [], finish="failed")]))

    def _begin(self, chosen: Transcription) -> Steps:
        (tensor,) = chosen.sound.tensors
        samples = torch.frombuffer(bytearray(tensor.data), dtype=torch.int16).float() / 2**15
        assert chosen.request.speech is not None
        return self._model.transcribe(samples, chosen.request.prompt_ids, chosen.request.speech)

    def _forget(self, seq_id: int) -> bool:
        steps = self._steps.pop(seq_id, None)
        if steps is not None:
            steps.close()
        return self._queue.remove(seq_id)

    def _fail(self, seq_id: int, error: Exception) -> None:
        """End a request whose step failed. Raises EngineFailure if the device is lost."""
        logger.error("a step of sequence %d failed", seq_id, exc_info=error)
        self._forget(seq_id)
        if has_lost_device(error):
            message = "the device has failed and computes nothing more in this process"
            raise EngineFailure(ErrorCode.ENGINE_ERROR, message) from error
        self._channel.send(StepResult([SequenceOutput(seq_id, [], None, "failed", 0)]))

    def _stats(self, check_integrity: bool) -> CoreStats:
        stats = dataclasses.replace(
            self._queue.stats(), busy_us=int(self._busy_s * 1e6), num_generated_tokens=self._num_generated
        )
        if not check_integrity:
            return stats
        error = self._queue.check_integrity()
        if not error and not set(self._steps) <= self._queue.seq_ids():
            error = "a request that has ended still computes"
        return dataclasses.replace(stats, integrity=error)
