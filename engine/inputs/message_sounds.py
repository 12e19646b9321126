"""Decodes the sounds of messages to models that hear by themselves, and has inputs of their encoder made of them.

A part is `{"type": "audio", "data": base64, "param"}`. One killable child decodes it (media/decoder.py), another makes
inputs of the samples (engine/media/sound_inputs.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.processor_child import ProcessorChild
from engine.inputs.videos import bytes_of
from engine.slow_work import SlowWork

if TYPE_CHECKING:
    from engine.inputs.media.decoded import DecodedBudget
    from engine.inputs.media.decoder import MediaDecoder

TARGET = "engine.media.sound_inputs:answer"
OPEN, PREPARE = "open", "prepare"
"""The tasks of the child."""
LEAST_S = 0.1
SPARE_S = 0.1
"""What files may have beyond the longest sound: encoders fill their last frame. The model's processor drops it."""


class MessageSounds:
    """The reader of the sounds of one model."""

    def __init__(self, path: Path, work: SlowWork, decoder: MediaDecoder) -> None:
        """Start a child, which opens the model's feature extractor. Raises ModelLoadError."""
        self._decoder = decoder
        self._child = ProcessorChild(TARGET, (OPEN, str(path)), work)
        try:
            opened = self._child.open(path, "audio")
        except BaseException:
            self.close()
            raise
        self.token: str = opened["token"]
        self.token_id: int = opened["token_id"]
        self.is_text: bool = opened["is_text"]
        self._rate: int = opened["rate"]
        self._max_seconds: float = opened["max_seconds"]

    def read(
        self, part: dict[str, Any], param: str, *, tenant: str, deadline: float, budget: DecodedBudget
    ) -> dict[str, Any]:
        """Return what the child made of a part. Raises RequestError that names the part, and EngineUnavailable."""
        data = bytes_of(part["data"], "audio", param)
        sound = self._decoder.audio(data, param=param, rate=self._rate, tenant=tenant)
        if sound.seconds < LEAST_S:
            message = f"the audio must have at least {LEAST_S} seconds, got {sound.seconds:.2f}; send a longer one"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        if self._max_seconds and sound.seconds > self._max_seconds + SPARE_S:
            message = (
                f"the audio must have at most {self._max_seconds:g} seconds, which this model hears at once, got "
                f"{sound.seconds:.1f}; send parts of it, each as a sound of its own"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        budget.take(sound.samples.nbytes, param)
        arguments = (sound.samples.tobytes(), sound.content_hash)
        return self._child.make(PREPARE, arguments, kind="audio", param=param, deadline=deadline, tenant=tenant)

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._child.close()
