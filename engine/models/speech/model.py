"""What all models of speech have: sound in, segments of text out, in steps short enough to wait for.

`transcribe` is a generator. Each of its steps computes little: a piece of the input, a window's encoding, or a token.
Between two of them the core serves others and can drop the request.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

import torch

from engine.messages import SpeechOptions, SpokenSegment

RATE = 16_000
"""Samples a second of all that is served."""
Steps = Generator[list[SpokenSegment], None, str]
"""Yields the segments that a step has settled, mostly none; returns the language, "" if it is not known."""


def chosen_token(scores: torch.Tensor, temperature: float, draws: torch.Generator) -> int:
    """Return the most likely token, or draw one from `scores` (vocabulary) if the temperature is above 0."""
    if not temperature:
        return int(scores.argmax())
    return int(torch.multinomial(((scores - scores.max()) / temperature).softmax(-1), 1, generator=draws))


class SpeechModel(Protocol):
    """A loaded model."""

    vocab_size: int
    max_tokens: int
    """Of a window."""

    def transcribe(self, samples: torch.Tensor, prompt_ids: list[int], options: SpeechOptions) -> Steps:
        """Write down the sound. `samples`: float32, one channel, RATE a second; at least a tenth of a second."""
        ...

    def forms(self) -> dict[str, str]:
        """Say which form each part of the model runs in."""
        ...
