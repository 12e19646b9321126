"""The sound of a request to a model that writes down speech: decoded in a killable child, checked, made small."""

from __future__ import annotations

import base64
import binascii
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.api.errors import EngineUnavailable, ErrorCode, RequestError
from engine.api.languages import code_of
from engine.api.media import MediaLimits
from engine.api.request import GREEDY_BELOW, Speech
from engine.messages import DefineMedia, MediaTensor, SpeechOptions
from engine.model_kind import SpeechPurpose
from engine.slow_work import SlowWork
from engine.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.inputs.media.decoder import MediaDecoder

RATE = 16_000
LEAST_S = 0.1
MAX_PROMPT_TOKENS = 223
"""Of the text before the sound, its last; half of a window's tokens (https://github.com/openai/whisper)."""
PROMPT_MARK = "<|startofprev|>"
MAX_HELD_BYTES = 1 << 30
"""Of the samples of all requests that a worker has at once."""
HIGHEST, LOWEST = 32_767, -32_768


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sound:
    """A sound, ready for the core. `definition` has its samples as 16-bit integers."""

    definition: DefineMedia
    seconds: float
    num_tokens: int


class SoundReader:
    """The reader of the requests to one model. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, purpose: SpeechPurpose, work: SlowWork, limits: MediaLimits) -> None:
        from engine.inputs.media.decoder import MediaDecoder  # noqa: PLC0415  # with numpy, for models that hear only

        self._tokenizer = tokenizer
        self._purpose = purpose
        self._limits = limits
        self._decoder: MediaDecoder = MediaDecoder(work, limits)
        self._held_bytes = 0
        self._released = deque[int]()
        """What is not yet taken off: garbage is collected at any place, also while a sound is counted."""
        self._changed = threading.Lock()

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._decoder.close()

    def read(self, speech: Speech, key: str, tenant: str) -> Sound:
        """Decode the sound. `key` stands for it. Raises RequestError that names the field, and EngineUnavailable."""
        import numpy as np  # noqa: PLC0415  # as the decoder does

        try:
            data = base64.b64decode(speech.data, validate=True)
        except (binascii.Error, ValueError):
            raise _refused(f"{speech.param} must be base64", speech.param) from None
        heard = self._decoder.audio(
            data, param=speech.param, rate=RATE, max_seconds=self._limits.max_transcription_seconds, tenant=tenant
        )
        if heard.seconds < LEAST_S:
            message = f"the audio must have at least {LEAST_S} seconds, got {heard.seconds:.2f}; send a longer one"
            raise _refused(message, speech.param)
        samples = np.rint(heard.samples * (HIGHEST + 1)).clip(LOWEST, HIGHEST).astype("<i2")
        tensor = MediaTensor("samples", "int16", [len(samples)], samples.tobytes())
        num_tokens = max(1, round(heard.seconds * self._purpose.tokens_per_second))
        sound = Sound(DefineMedia(key, num_tokens, [tensor]), heard.seconds, num_tokens)
        self._hold(sound, samples.nbytes)
        return sound

    def prompt_ids(self, speech: Speech) -> list[int]:
        """Return the tokens of the text before the sound, behind their mark. Raises RequestError."""
        text = speech.prompt.strip()
        if not text:
            return []
        mark = self._tokenizer.backend.token_to_id(PROMPT_MARK)
        if not self._purpose.takes_prompt or mark is None:
            raise _refused("prompt cannot be used: this model takes none; leave it out", "prompt")
        return [mark, *self._tokenizer.encode_ordinary(f" {text}")[-MAX_PROMPT_TOKENS:]]

    def options(self, speech: Speech, seed: int) -> SpeechOptions:
        """Return the options for the core. Raises RequestError for what the model cannot do."""
        if speech.translates and not self._purpose.translates:
            message = "model must name one that translates: this one writes down what is said, in its own language"
            raise _refused(message, "model")
        if speech.wants_words and not self._purpose.has_word_times:
            message = (
                "timestamp_granularities[] cannot have word: the files of this model do not say which of its heads "
                "follow the sound (alignment_heads); ask for segment"
            )
            raise _refused(message, "timestamp_granularities[]")
        temperature = 0.0 if speech.temperature < GREEDY_BELOW else speech.temperature
        return SpeechOptions(self._language(speech.language), speech.translates, temperature, seed, speech.wants_words)

    def _language(self, asked: str) -> str:
        known = self._purpose.languages
        if not asked:
            return "" if self._purpose.hears_language else known[0]
        code = code_of(asked)
        if code not in known:
            names = ", ".join(known[:120])
            raise _refused(f"language must be one that the model knows, got {asked[:40]!r}: {names}", "language")
        return code

    def _hold(self, sound: Sound, num_bytes: int) -> None:
        """Count the samples until nothing has the sound any more. Raises EngineUnavailable if they are too many."""
        with self._changed:
            while self._released:
                self._held_bytes -= self._released.popleft()
            if self._held_bytes and self._held_bytes + num_bytes > MAX_HELD_BYTES:
                message = "the model has as much sound waiting as it may hold; try again later"
                raise EngineUnavailable(ErrorCode.OVERLOADED, message)
            self._held_bytes += num_bytes
        weakref.finalize(sound, self._released.append, num_bytes)


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
