"""The runner of an encoder: takes the sequences of a step, returns a vector for each, or a score as one number.

Knows the model and the device; nothing of requests. There is no cache: a prompt is computed whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Rows
from pathlib import Path
from time import thread_time

import torch

from engine.api.errors import ModelLoadError
from engine.api.request import EmbedOptions
from engine.config import EngineConfig
from engine.loading.encoder_checkpoint import open_encoder
from engine.models.encoder import Encoder
from engine.models.encoder_heads import Head
from engine.sequence import Sequence

logger = logging.getLogger(__name__)

DTYPES = {"auto": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16}
STEP_SECONDS = 0.2
"""How long a step of several prompts should last: newcomers and aborts wait for its end."""
PROBE_TOKENS, TRIES = 64, 3
"""Tokens of the text that is timed, and how often: the first time takes longer."""
MIN_STEP_TOKENS, MAX_STEP_TOKENS, DEVICE_STEP_TOKENS = 128, 8192, 16384


class EncoderRunner:
    """A loaded encoder. `max_model_len`, `size` and `max_num_batched_tokens` are fixed once it is built."""

    def __init__(self, encoder: Encoder, head: Head, max_model_len: int, config: EngineConfig) -> None:
        """Raises ModelLoadError if its numbers are not finite."""
        self._encoder = encoder
        self._head = head
        self._weights = "float32" if DTYPES[config.weights] is torch.float32 else "bfloat16"
        self.max_model_len = max_model_len
        self.vocab_size = encoder.config.vocab_size
        self.size = head.size
        """Numbers of a result."""
        _, *times = (self._probe(config.model_path) for _ in range(TRIES))
        seconds = min(times)
        self.max_num_batched_tokens = config.max_num_batched_tokens or self._affordable_tokens(seconds)
        logger.info("an encoder of texts of %d tokens, %d a step", max_model_len, self.max_num_batched_tokens)

    @classmethod
    def load(cls, config: EngineConfig) -> EncoderRunner:
        """Load the files of an encoder. Raises ModelLoadError."""
        path = config.model_path
        if config.weights not in DTYPES:
            raise ModelLoadError(
                f"{path}: the weights of encoders are {', '.join(DTYPES)}, got {config.weights}: set LIGHTCONE_WEIGHTS"
            )
        checkpoint, _, _ = open_encoder(path)
        longest = checkpoint.max_position
        if config.max_model_len > longest:
            raise ModelLoadError(
                f"{path}: max_model_len must be at most the model's context of {longest}, got {config.max_model_len}"
            )
        encoder, head = checkpoint.build(torch.device(config.device), DTYPES[config.weights])
        return cls(encoder, head, config.max_model_len or longest, config)

    def computed_by(self) -> str:
        """Say on one line which form each part of the model runs in."""
        return "; ".join(f"{name} {text}" for name, text in self.forms().items())

    def forms(self) -> dict[str, str]:
        """Say which form each part of the model runs in."""
        return {"backend": "native", "weights": self._weights, "attention": "torch, whole texts, no cache"}

    def results(self, sequences: Rows[Sequence]) -> list[list[float]]:
        """Compute the prompts of a step; return the vector of each, or its score as one number."""
        lengths = [len(sequence.prompt_ids) for sequence in sequences]
        token_ids = [token_id for sequence in sequences for token_id in sequence.prompt_ids]
        segments = [
            int(0 < sequence.request.second_start <= place)
            for sequence, length in zip(sequences, lengths, strict=True)
            for place in range(length)
        ]
        options = [sequence.embed or EmbedOptions() for sequence in sequences]
        return self._compute(token_ids, segments, lengths, options)

    @torch.inference_mode()
    def _compute(
        self, token_ids: list[int], segments: list[int], lengths: list[int], options: list[EmbedOptions]
    ) -> list[list[float]]:
        device = self._encoder.device
        ids, marks = (torch.tensor(values, device=device) for values in (token_ids, segments))
        states = self._encoder.forward(ids, marks, lengths)
        return self._head(states.split(lengths), options)

    def _probe(self, path: Path) -> float:
        """Compute a text; return the processor seconds of this thread, which no other load affects.

        Raises ModelLoadError if its numbers are not finite.
        """
        length = min(PROBE_TOKENS, self.max_model_len)
        began_at = thread_time()
        (result,) = self._compute([0] * length, [0] * length, [length], [EmbedOptions()])
        if not all(map(torch.isfinite, torch.tensor(result))):
            raise ModelLoadError(f"{path}: the first step gives numbers that are not finite")
        return thread_time() - began_at

    def _affordable_tokens(self, seconds: float) -> int:
        if self._encoder.device.type != "cpu":
            return DEVICE_STEP_TOKENS
        affordable = int(min(PROBE_TOKENS, self.max_model_len) * STEP_SECONDS / max(seconds, 1e-6))
        return max(MIN_STEP_TOKENS, min(affordable, MAX_STEP_TOKENS))
