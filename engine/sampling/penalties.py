"""Repetition, frequency and presence penalties of the tokens that a sequence has seen.

repetition: for tokens of prompt and output; divides a positive logit, multiplies a negative one (Keskar et al., CTRL,
2019)
frequency:  subtracted once for each time the token was generated
presence:   subtracted once if the token was generated
"""

from __future__ import annotations

import numpy as np
import torch

from engine.api.request import SamplingParams
from engine.kernels.cpu.transfer import upload
from engine.sequence import Sequence

LEAST_FACTOR = 1e-30
"""Repetition penalties are clamped to this and its inverse; more extreme ones would leave the range of float32."""


def has_penalties(sampling: SamplingParams) -> bool:
    """Return True if any penalty is on."""
    return sampling.repetition_penalty != 1.0 or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0


class TokenCounts:
    """The distinct tokens of one sequence, and how often each was generated."""

    def __init__(self, sequence: Sequence, vocab_size: int) -> None:
        sampling = sequence.sampling
        repetition = min(max(sampling.repetition_penalty, LEAST_FACTOR), 1 / LEAST_FACTOR)
        self.params = np.array([repetition, sampling.frequency_penalty, sampling.presence_penalty], np.float32)
        self._vocab_size = vocab_size
        self._counted: list[int] = []
        prompt_ids = dict.fromkeys(sequence.prompt_ids) if sequence.sampling.repetition_penalty != 1.0 else {}
        known = [token_id for token_id in prompt_ids if token_id < vocab_size]
        self._num_known = len(known)
        self._places = {token_id: place for place, token_id in enumerate(known)}
        self._ids = np.zeros(len(known) + 256, np.int64)
        self._ids[: len(known)] = known
        self._counts = np.zeros(len(known) + 256, np.float32)

    @property
    def ids(self) -> np.ndarray:
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> np.ndarray:
        """How often each was generated."""
        return self._counts[: len(self._places)]

    @property
    def repeats(self) -> np.ndarray:
        """Whether each is in the prompt or the output now."""
        repeats = self.counts > 0
        repeats[: self._num_known] = True
        return repeats

    def update(self, output_ids: list[int]) -> None:
        """Count the tokens generated since the last call; uncount those that were removed as rejected drafts."""
        counted = self._counted
        while len(counted) > len(output_ids) or (counted and counted[-1] != output_ids[len(counted) - 1]):
            self._counts[self._places[counted.pop()]] -= 1
        for token_id in output_ids[len(counted) :]:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token_id
            self._counts[place] += 1
            counted.append(token_id)


def apply_penalties(logits: torch.Tensor, rows: list[tuple[int, TokenCounts]], sequences: list[Sequence]) -> None:
    """Change logits (R, V) in place for the penalised `rows` (number, counts)."""
    places, divisors, subtracted = [], [], []
    for row, counts in rows:
        counts.update(sequences[row].output_ids)
        repetition, frequency, presence = counts.params
        places.append(counts.ids + row * logits.shape[1])
        divisors.append(np.where(counts.repeats, repetition, np.float32(1.0)))
        subtracted.append(frequency * counts.counts + presence * (counts.counts > 0))
    index = upload(np.concatenate(places), torch.int64, logits.device)
    factors, less = (upload(np.concatenate(part), torch.float32, logits.device) for part in (divisors, subtracted))
    flat = logits.view(-1)
    values = flat[index]
    changed = torch.where(values > 0, values / factors, values * factors) - less
    # NOTE: the most extreme penalties leave the range of float32, which must not make a sound row fail.
    flat[index] = torch.where(values.isfinite(), changed.nan_to_num_(0.0), values)
