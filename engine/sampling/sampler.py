"""Chooses the next token of every sequence of a step. Called by the core; knows nothing of blocks, text or requests.

Order, as docs/api/chat-completions.md promises it: grammar mask, raw log-probabilities, min_tokens mask, repetition, frequency and presence
penalties, greedy choice (ties to the lowest id), temperature, min_p, top_k, top_p, draw. Each stage looks only at the rows that
asked for it, and each row's result is a function of that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.messages import SampledLogprobs
from engine.sampling.batch import DrawRows, SamplingBatch
from engine.sampling.draw import draw_from_all
from engine.sampling.filters import draw_filtered
from engine.sampling.logprobs import RawLogprobs
from engine.sampling.masks import GrammarBitmask, mask_grammar, mask_stop_ids
from engine.sampling.penalties import apply_penalties
from engine.sampling.randomness import uniform
from engine.sampling.ranking import block_maxima, first_largest, pad_to_blocks
from engine.sequence import Sequence

FAILED_TOKEN = -1


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token of one row. A row that held NaN or +inf, or whose tokens are all forbidden, has failed and has no token."""

    token_id: int
    logprobs: SampledLogprobs | None = None

    @property
    def is_failed(self) -> bool:
        return self.token_id == FAILED_TOKEN


class Sampler:
    """Keeps what sampling needs of each sequence between `add` and `remove`."""

    def __init__(self, vocab_size: int, device: torch.device | str) -> None:
        """`vocab_size` is the width of the logits."""
        self._batch = SamplingBatch(vocab_size, torch.device(device))

    def add(self, sequence: Sequence) -> None:
        """Remember a new sequence, or one that resumes with output already there."""
        self._batch.add(sequence)

    def remove(self, seq_id: int) -> None:
        """Forget a sequence that has ended; unknown ids are ignored."""
        self._batch.remove(seq_id)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, sequences: list[Sequence], bitmask: GrammarBitmask | None = None) -> list[SampledToken]:
        """Choose a token per row of logits (R, V) float32, row i for `sequences[i]`. Overwrites logits."""
        if not sequences:
            return []
        rows = self._batch.rows(sequences)
        if bitmask is not None:
            mask_grammar(logits, bitmask)
        logprobs = RawLogprobs(logits, rows.logprobs) if rows.logprobs else None
        if rows.floored:
            mask_stop_ids(logits, rows.floored, sequences)
        if rows.penalised:
            apply_penalties(logits, rows.penalised, sequences)
        logits = pad_to_blocks(logits)
        maxima = block_maxima(logits)
        token_ids, best = first_largest(logits, maxima)
        if (draws := rows.filtered) is not None:
            uniforms = _uniforms(draws, sequences, logits.device)
            drawn = draw_filtered(*_select(draws.index, logits, maxima, best), draws.filters, uniforms)
            token_ids = _place(token_ids, draws.index, drawn)
        if (draws := rows.unfiltered) is not None:
            uniforms = _uniforms(draws, sequences, logits.device)
            drawn = draw_from_all(*_select(draws.index, logits, best), draws.filters.temperature, uniforms)
            token_ids = _place(token_ids, draws.index, drawn)
        reported = logprobs.of(token_ids) if logprobs is not None else {}
        is_sound = best.isfinite().tolist()
        return [
            SampledToken(token_id, reported.get(row)) if is_sound[row] else SampledToken(FAILED_TOKEN)
            for row, token_id in enumerate(token_ids.tolist())
        ]


def _select(index: torch.Tensor | None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Take the rows at `index` of each tensor; nothing is copied when these are all rows."""
    return tensors if index is None else tuple(tensor[index] for tensor in tensors)


def _place(token_ids: torch.Tensor, index: torch.Tensor | None, drawn: torch.Tensor) -> torch.Tensor:
    """Put drawn tokens into their rows."""
    return drawn if index is None else token_ids.index_copy(0, index, drawn)


def _uniforms(draws: DrawRows, sequences: list[Sequence], device: torch.device) -> torch.Tensor:
    """Return the numbers (R,) that these rows draw with at their positions."""
    numbers = [uniform(seed, len(sequences[row].output_ids)) for seed, row in zip(draws.seeds, draws.rows, strict=True)]
    return torch.tensor(numbers, dtype=torch.float64, device=device)
