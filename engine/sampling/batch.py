"""What the sampler must do for the rows of a step, grouped by feature; made anew only when the rows change.

A sequence's state lives in its own record and nowhere else: when it leaves, nothing stays behind that a later sequence could meet.
The tensors of a `StepRows` are uploaded once and serve until a sequence joins, leaves or moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.sampling.filters import Filters
from engine.sampling.penalties import TokenCounts, has_penalties
from engine.sequence import Sequence

MIN_TEMPERATURE = 0.01


@dataclass(frozen=True, slots=True)
class SequenceRecord:
    """What sampling remembers of one sequence. `counts` is None without penalties; `top_k` is 0 when off."""

    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    is_greedy: bool
    counts: TokenCounts | None
    stop_ids: list[int]
    top_logprobs: int | None

    @property
    def is_filtered(self) -> bool:
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class DrawRows:
    """Rows that draw in the same way: their numbers (None in `index`: all rows of the step), seeds and parameters."""

    rows: list[int]
    index: torch.Tensor | None
    seeds: list[int]
    filters: Filters


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step by feature. A feature that nobody uses is an empty list or None, and costs nothing."""

    unfiltered: DrawRows | None
    filtered: DrawRows | None
    penalised: list[tuple[int, TokenCounts]]
    floored: list[tuple[int, list[int]]]
    logprobs: list[tuple[int, int]]


class SamplingBatch:
    """Records of the sequences in the engine, and the grouping of the rows of the last step."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._records: dict[int, SequenceRecord] = {}
        self._last_ids: list[int] = []
        self._last_rows = StepRows(None, None, [], [], [])

    def __len__(self) -> int:
        return len(self._records)

    def add(self, sequence: Sequence) -> None:
        """Remember a sequence. Its `sampling.seed` must be set unless it is greedy."""
        sampling = sequence.sampling
        self._records[sequence.seq_id] = SequenceRecord(
            seed=sampling.seed or 0,
            temperature=max(sampling.temperature, MIN_TEMPERATURE),
            top_k=sampling.top_k if 0 < sampling.top_k < self._vocab_size else 0,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            is_greedy=sampling.is_greedy,
            counts=TokenCounts(sequence, self._vocab_size) if has_penalties(sampling) else None,
            stop_ids=[token_id for token_id in sequence.stop_ids if token_id < self._vocab_size] if sequence.stop.min_tokens else [],
            top_logprobs=sequence.logprobs.top if sequence.logprobs.enabled else None,
        )
        self._last_ids = []

    def remove(self, seq_id: int) -> None:
        """Forget a sequence; unknown ids are ignored."""
        self._records.pop(seq_id, None)
        self._last_ids = []

    def rows(self, sequences: list[Sequence]) -> StepRows:
        """Group the rows of a step, one per sequence."""
        seq_ids = [sequence.seq_id for sequence in sequences]
        if seq_ids != self._last_ids or not seq_ids:
            self._last_rows = self._group([self._records[seq_id] for seq_id in seq_ids])
            self._last_ids = seq_ids
        return self._last_rows

    def _group(self, records: list[SequenceRecord]) -> StepRows:
        rows = list(enumerate(records))
        filtered = [row for row, record in rows if not record.is_greedy and record.is_filtered]
        unfiltered = [row for row, record in rows if not record.is_greedy and not record.is_filtered]
        return StepRows(
            unfiltered=self._draw_rows(unfiltered, records),
            filtered=self._draw_rows(filtered, records),
            penalised=[(row, record.counts) for row, record in rows if record.counts is not None],
            floored=[(row, record.stop_ids) for row, record in rows if record.stop_ids],
            logprobs=[(row, record.top_logprobs) for row, record in rows if record.top_logprobs is not None],
        )

    def _draw_rows(self, rows: list[int], records: list[SequenceRecord]) -> DrawRows | None:
        if not rows:
            return None
        chosen = [records[row] for row in rows]
        filters = Filters(
            temperature=torch.tensor([record.temperature for record in chosen], device=self._device),
            top_k=torch.tensor([record.top_k for record in chosen], device=self._device),
            top_p=torch.tensor([record.top_p for record in chosen], dtype=torch.float64, device=self._device),
            min_p=torch.tensor([record.min_p for record in chosen], device=self._device),
            max_top_k=max(record.top_k for record in chosen),
            has_top_p=any(record.top_p < 1.0 for record in chosen),
            has_min_p=any(record.min_p > 0.0 for record in chosen),
            has_open_mass=any(record.top_p < 1.0 and not record.top_k and not record.min_p for record in chosen),
        )
        index = torch.tensor(rows, device=self._device) if len(rows) < len(records) else None
        return DrawRows(rows, index, [record.seed for record in chosen], filters)
