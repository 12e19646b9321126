"""A step plan as tensors: token ids, positions, cache slots and the layout for attention. Built once per step.

Also makes dummy sequences and batches, for what a model computes while it loads and for benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.attention.backend import StepLayout, WholeSpan
from engine.attention.cache_groups import CacheGroups
from engine.kernels.cpu.transfer import upload
from engine.layers.adapters import AdapterRun
from engine.layers.embedding import InputRows
from engine.messages import AddSequence
from engine.sequence import Sequence, StepPlan

INITIAL_TOKENS = 512
DUMMY_CONTEXT = 256
DUMMY_TOKENS = 16
"""Distinct tokens of a dummy batch; any vocabulary has as many."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tensors of one step. token_ids, positions: (T,) int64"""

    token_ids: torch.Tensor
    positions: torch.Tensor
    layout: StepLayout
    sample_rows: torch.Tensor | None
    """(R,) int64, the rows of the last known token of each chunk and of each draft; None if these are all rows."""
    adapters: tuple[AdapterRun, ...] = ()
    """The rows that have an adapter."""
    vectors: tuple[InputRows, ...] = ()
    """The rows whose inputs are no rows of the embedding."""


class BatchBuilder:
    """A builder that fills one buffer per step and copies it to the device. On a CPU the next batch overwrites it."""

    def __init__(self, groups: CacheGroups, device: torch.device) -> None:
        self._block_size = groups.block_size
        self._num_groups = groups.count
        self._device = device
        self._reserve(INITIAL_TOKENS)

    def build(self, plan: StepPlan) -> StepBatch:
        """Build the batch of a plan, in the order of its chunks."""
        chunks = plan.chunks
        num_tokens = sum(chunk.num_positions for chunk in chunks)
        if num_tokens > self._buffer.shape[1]:
            self._reserve(2 * num_tokens)
        token_ids, positions, *slots = self._buffer[:, :num_tokens]
        block_size, num_groups = self._block_size, self._num_groups
        samples, adapters, vectors, first = list[int](), list[AdapterRun](), list[InputRows](), 0
        whole = list[WholeSpan]()
        for sequence, start, num_known, is_sampled, draft_ids in chunks:
            count = num_known + len(draft_ids)
            end, last = start + count, first + count
            token_ids[first : first + num_known] = sequence.token_slice(start, start + num_known)
            if draft_ids:
                token_ids[first + num_known : last] = draft_ids
            if count == 1:
                positions[first] = start + sequence.shift
                table, place = sequence.block_ids, start // block_size * num_groups
                for group in range(num_groups):
                    slots[group][first] = table[place + group] * block_size + start % block_size
            else:
                places = np.arange(start, end)
                positions[first:last] = places + sequence.shift
                blocks = np.asarray(sequence.block_ids).reshape(-1, num_groups)[places // block_size]
                for group in range(num_groups):
                    slots[group][first:last] = blocks[:, group] * block_size + places % block_size
            if is_sampled:
                samples.extend(range(first + num_known - 1, last))
            if sequence.adapter_index:
                adapters.append(AdapterRun(sequence.adapter_index, first, count))
            if start < sequence.inputs_end:
                _shift_before(sequence, positions[first:last], start)
                vectors += _input_rows(sequence, start, end, first)
                whole += _whole_spans(sequence, start, end, first)
            first = last
        batch = self._to_device(plan, num_tokens, samples, tuple(adapters))
        if not vectors:
            return batch
        layout = replace(batch.layout, whole_spans=tuple(whole)) if whole else batch.layout
        return replace(batch, vectors=tuple(vectors), layout=layout)

    def _to_device(
        self, plan: StepPlan, num_tokens: int, samples: list[int], adapters: tuple[AdapterRun, ...]
    ) -> StepBatch:
        places = self._tensor[:, :num_tokens]
        if self._device.type != "cpu":
            places = upload(self._buffer[:, :num_tokens], torch.int64, self._device)
        token_ids, positions, slots = places[0], places[1], places[2:]
        query_lens = [chunk.num_positions for chunk in plan.chunks]
        layout = StepLayout(
            query_lens=query_lens,
            context_lens=[chunk.start + chunk.num_positions for chunk in plan.chunks],
            slots=slots,
            block_ids=[chunk.sequence.block_ids for chunk in plan.chunks],
            num_decodes=next((i for i, length in enumerate(query_lens) if length > 1), len(query_lens)),
        )
        rows = None if len(samples) == num_tokens else upload(samples, torch.int64, self._device)
        return StepBatch(token_ids, positions, layout, rows, adapters)

    def _reserve(self, num_tokens: int) -> None:
        self._tensor = torch.zeros(2 + self._num_groups, num_tokens, dtype=torch.int64)
        self._buffer = self._tensor.numpy()


def _shift_before(sequence: Sequence, positions: np.ndarray, start: int) -> None:
    """Take the shifts of media off the positions of the tokens before them. positions: of tokens from `start` on."""
    before = 0
    for span in sequence.inputs:
        if span.shift != before and span.end > start:
            positions[: span.end - start] -= span.shift - before
        before = span.shift


def _input_rows(sequence: Sequence, start: int, end: int, first: int) -> Iterator[InputRows]:
    """Yield the inputs of the tokens `start..end` that have some of their own. `first`: the row of token `start`."""
    for span in sequence.inputs:
        low, high = max(start, span.start), min(end, span.end)
        if low < high:
            part = slice(low - span.start, high - span.start)
            places = None if span.places is None else span.places[:, part]
            deep = None if span.deep is None else span.deep[:, part]
            yield InputRows(first + low - start, span.vectors[part], places, deep)


def _whole_spans(sequence: Sequence, start: int, end: int, first: int) -> Iterator[WholeSpan]:
    """Yield the spans in the tokens `start..end` that see each other. `first`: the row of token `start`."""
    for low, high in sequence.whole_spans:
        if start <= low and high <= end:
            yield WholeSpan(first + low - start, low, high - low, sequence.block_ids)


def dummy_sequence(seq_id: int, prompt_ids: list[int], block_ids: list[int], max_tokens: int = 1) -> Sequence:
    """Return a sequence with default options that already holds its blocks."""
    request = AddSequence(
        seq_id, prompt_ids, [], SamplingParams(seed=0), StopRules(), LogprobOptions(), [], max_tokens, cache_root=b""
    )
    return Sequence(request, block_ids=block_ids)


def dummy_batch(number: int, num_rows: int, max_tokens: int, groups: CacheGroups) -> StepBatch:
    """Build a batch of the last `num_rows` tokens of one sequence, behind DUMMY_CONTEXT tokens if `max_tokens` allow.

    Consecutive values of `number` give different tokens at different positions. Uses the first cache blocks, which are
    always written again before they are read.
    """
    end = max(num_rows, min(DUMMY_CONTEXT + number % 2, max_tokens - 1 + number % 2))
    token_ids = torch.arange(num_rows).add_(number).remainder_(min(num_rows + 1, DUMMY_TOKENS))
    positions = torch.arange(end - num_rows, end)
    table, size = groups.lone_table(end), groups.block_size
    blocks = torch.tensor(table).view(-1, groups.count).t()[:, positions // size]
    slots = (blocks * size + positions % size).contiguous()
    return StepBatch(token_ids, positions, StepLayout([num_rows], [end], slots, [table], int(num_rows == 1)), None)
