"""Groups the rows of a step by the features that they use; regroups only when the rows change.

All state of a sequence is in its record. The tensors of a `StepRows` are uploaded once and serve until a sequence
joins, leaves or moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from engine.kernels.cpu.transfer import upload
from engine.sampling.draw import Filters
from engine.sampling.logprobs import LogprobRow
from engine.sampling.masks import BadWords, LogitEntries
from engine.sampling.penalties import TokenCounts, has_penalties
from engine.sampling.processors.registry import ProcessorChain, ProcessorRegistry
from engine.sampling.thinking import ThinkingTrack
from engine.sequence import Sequence

MIN_TEMPERATURE = 0.01


@dataclass(frozen=True, slots=True)
class SequenceRecord:
    """The sampling state of one sequence. Features that it does not use are None or empty."""

    seed: int
    temperature: float
    top_k: int
    """0 when off."""
    top_p: float
    min_p: float
    is_greedy: bool
    counts: TokenCounts | None
    stop_ids: list[int]
    allowed_ids: list[int] | None
    bad_words: BadWords | None
    bias: dict[int, float]
    processors: ProcessorChain | None
    thinking: ThinkingTrack | None
    logprobs: LogprobRow | None
    scores_processed: bool

    @property
    def ignores_output(self) -> bool:
        """True if the choice of a token depends on no other output token, and only the token is reported."""
        looks = (self.counts, self.bad_words, self.processors, self.thinking, self.logprobs)
        return not self.stop_ids and all(feature is None for feature in looks)

    @property
    def is_filtered(self) -> bool:
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class DrawRows:
    """Rows that draw in the same way."""

    rows: list[int]
    """Their numbers."""
    index: torch.Tensor | None
    """Their numbers on the device, None for all rows of the step."""
    seeds: list[int]
    filters: Filters


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step by feature. A feature that no row uses is an empty list or None, and costs nothing."""

    unfiltered: DrawRows | None = None
    filtered: DrawRows | None = None
    allowed: LogitEntries | None = None
    bad_words: list[tuple[int, BadWords]] = field(default_factory=list)
    min_tokens: list[tuple[int, list[int]]] = field(default_factory=list)
    """Rows with a minimum length, and their stop ids."""
    bias: LogitEntries | None = None
    penalties: list[tuple[int, TokenCounts]] = field(default_factory=list)
    processors: list[tuple[int, ProcessorChain]] = field(default_factory=list)
    thinking: list[tuple[int, ThinkingTrack]] = field(default_factory=list)
    raw_logprobs: list[LogprobRow] = field(default_factory=list)
    """Taken before the masks, except that of the grammar."""
    processed_logprobs: list[LogprobRow] = field(default_factory=list)
    """Taken after masks, bias, penalties and processors."""


class SamplingBatch:
    """The records of all sequences that are sampled, and the grouping of the last step."""

    def __init__(self, vocab_size: int, device: torch.device, processors: ProcessorRegistry) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._processors = processors
        self._records: dict[int, SequenceRecord] = {}
        self._last_ids: list[int] = []
        self._last_rows = StepRows()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.seq_id in self._records

    def add(self, sequence: Sequence) -> None:
        """Make the record of a sequence. Its `sampling.seed` must be set unless it is greedy.

        Raises ValueError for token ids that the model does not have, which would reach the rows of other sequences, and
        whatever the constructor of a logits processor raises.
        """
        request, sampling = sequence.request, sequence.sampling
        thinking, logprobs = request.thinking, request.logprobs
        bias = dict(sampling.logit_bias)
        end_ids = () if thinking is None else (thinking.end_ids, *thinking.other_ends)
        for token_ids in (sampling.allowed_token_ids, bias, logprobs.token_ids, *request.bad_word_ids, *end_ids):
            if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self._vocab_size:
                raise ValueError(f"token ids must be from 0 to {self._vocab_size - 1}")
        self._records[sequence.seq_id] = SequenceRecord(
            seed=sampling.seed or 0,
            temperature=max(sampling.temperature, MIN_TEMPERATURE),
            top_k=sampling.top_k if 0 < sampling.top_k < self._vocab_size else 0,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            is_greedy=sampling.is_greedy,
            counts=TokenCounts(sequence, self._vocab_size) if has_penalties(sampling) else None,
            stop_ids=[token_id for token_id in sequence.stop_ids if token_id < self._vocab_size]
            if request.stop.min_tokens
            else [],
            allowed_ids=None if sampling.allowed_token_ids is None else sorted(set(sampling.allowed_token_ids)),
            bad_words=BadWords(request.bad_word_ids) if request.bad_word_ids else None,
            bias=bias,
            processors=self._processors.chain(sequence, self._vocab_size) if sampling.processors else None,
            thinking=ThinkingTrack(thinking) if thinking is not None and thinking.budget is not None else None,
            logprobs=LogprobRow(0, logprobs.top, logprobs.token_ids) if logprobs.enabled else None,
            scores_processed=request.scores_processed,
        )
        self._last_ids = []

    def remove(self, seq_id: int) -> None:
        """Drop the record of a sequence. Unknown ids are ignored."""
        self._records.pop(seq_id, None)
        self._last_ids = []

    def record(self, sequence: Sequence) -> SequenceRecord:
        return self._records[sequence.seq_id]

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
        scored = [(record, replace(record.logprobs, row=row)) for row, record in rows if record.logprobs is not None]
        return StepRows(
            unfiltered=self._draw_rows(unfiltered, records),
            filtered=self._draw_rows(filtered, records),
            allowed=self._entries(
                {row: dict.fromkeys(record.allowed_ids, 0.0) for row, record in rows if record.allowed_ids is not None}
            ),
            bad_words=[(row, record.bad_words) for row, record in rows if record.bad_words is not None],
            min_tokens=[(row, record.stop_ids) for row, record in rows if record.stop_ids],
            bias=self._entries({row: record.bias for row, record in rows if record.bias}),
            penalties=[(row, record.counts) for row, record in rows if record.counts is not None],
            processors=[(row, record.processors) for row, record in rows if record.processors is not None],
            thinking=[(row, record.thinking) for row, record in rows if record.thinking is not None],
            raw_logprobs=[row for record, row in scored if not record.scores_processed],
            processed_logprobs=[row for record, row in scored if record.scores_processed],
        )

    def _entries(self, tokens: dict[int, dict[int, float]]) -> LogitEntries | None:
        """Upload the entries of some rows, given as row to token to value; None without rows."""
        if not tokens:
            return None
        index = [row * self._vocab_size + token_id for row, values in tokens.items() for token_id in values]
        values = [value for row_values in tokens.values() for value in row_values.values()]
        return LogitEntries(
            rows=upload(list(tokens), torch.int64, self._device),
            index=upload(index, torch.int64, self._device),
            values=upload(values, torch.float32, self._device),
        )

    def _draw_rows(self, rows: list[int], records: list[SequenceRecord]) -> DrawRows | None:
        if not rows:
            return None
        chosen = [records[row] for row in rows]
        filters = Filters(
            temperature=upload([record.temperature for record in chosen], torch.float32, self._device),
            top_k=upload([record.top_k for record in chosen], torch.int64, self._device),
            top_p=upload([record.top_p for record in chosen], torch.float64, self._device),
            min_p=upload([record.min_p for record in chosen], torch.float32, self._device),
            max_top_k=max(record.top_k for record in chosen),
            has_top_p=any(record.top_p < 1.0 for record in chosen),
            has_min_p=any(record.min_p > 0.0 for record in chosen),
            has_open_mass=any(record.top_p < 1.0 and not record.top_k and not record.min_p for record in chosen),
        )
        index = upload(rows, torch.int64, self._device) if len(rows) < len(records) else None
        return DrawRows(rows, index, [record.seed for record in chosen], filters)
