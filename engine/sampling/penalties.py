"""Repetition, frequency and presence penalties, sparse: only the tokens that a sequence has seen are touched.

repetition: tokens of prompt and output; a positive logit is divided, a negative one multiplied (Keskar et al., CTRL, 2019)
frequency:  subtracted as many times as the token was generated        presence: subtracted once if it was
"""

from __future__ import annotations

import numpy as np
import torch

from engine.api.sampling import SamplingParams
from engine.sequence import Sequence


def has_penalties(sampling: SamplingParams) -> bool:
    """Tell whether any penalty is on."""
    return sampling.repetition_penalty != 1.0 or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0


class TokenCounts:
    """The distinct tokens of one sequence and how often each was generated, kept up to date with its output."""

    def __init__(self, sequence: Sequence, vocab_size: int) -> None:
        self.params = np.array(
            [sequence.sampling.repetition_penalty, sequence.sampling.frequency_penalty, sequence.sampling.presence_penalty], np.float32
        )
        self._vocab_size = vocab_size
        self._num_counted = 0
        self._places: dict[int, int] = {}
        prompt_ids = dict.fromkeys(sequence.prompt_ids) if sequence.sampling.repetition_penalty != 1.0 else {}
        known = [token_id for token_id in prompt_ids if token_id < vocab_size]
        self._places = {token_id: place for place, token_id in enumerate(known)}
        self._ids = np.zeros(len(known) + 256, np.int64)
        self._ids[: len(known)] = known
        self._counts = np.zeros(len(known) + 256, np.float32)

    @property
    def ids(self) -> np.ndarray:
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> np.ndarray:
        return self._counts[: len(self._places)]

    def update(self, output_ids: list[int]) -> None:
        """Count the tokens that were generated since the last call."""
        for token_id in output_ids[self._num_counted :]:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token_id
            self._counts[place] += 1
        self._num_counted = len(output_ids)


def apply_penalties(logits: torch.Tensor, rows: list[tuple[int, TokenCounts]], sequences: list[Sequence]) -> None:
    """Change logits (R, V) in place for the penalised `rows` (number, counts)."""
    for row, counts in rows:
        counts.update(sequences[row].output_ids)
    places = np.concatenate([counts.ids + row * logits.shape[1] for row, counts in rows])
    num_generated = np.concatenate([counts.counts for _, counts in rows])
    params = np.repeat(np.stack([counts.params for _, counts in rows]), [len(counts.ids) for _, counts in rows], axis=0)
    repetition = torch.from_numpy(np.ascontiguousarray(params[:, 0])).to(logits.device)
    subtracted = torch.from_numpy(params[:, 1] * num_generated + params[:, 2] * (num_generated > 0)).to(logits.device)
    index = torch.from_numpy(places).to(logits.device)
    flat = logits.view(-1)
    values = flat[index]
    flat[index] = torch.where(values > 0, values / repetition, values * repetition) - subtracted
