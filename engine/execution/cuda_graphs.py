"""Decode steps as captured CUDA graphs: one launch for all kernels of the layers, for row counts up to `max_num_seqs`.

The inputs of a graph lie in fixed buffers. A step fills them, padded to the next captured row count, and replays the
graph. Padding rows see one position and write to a block that no sequence owns. Prompts, drafts and scores are computed
without graphs.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch

from engine.attention.xformers_paged import XformersAttention
from engine.execution.overlap import DeviceTokens
from engine.kernels.cpu.transfer import upload
from engine.models.decoder import Decoder
from engine.sequence import StepPlan

logger = logging.getLogger(__name__)

Compute = Callable[[], torch.Tensor]
Capture = Callable[[Compute], tuple[Callable[[], None], torch.Tensor]]
"""Records a computation over fixed buffers; returns a replay function and the tensor with its result."""
EIGHTS_UP_TO = 64


class CudaCapture:
    """A capture of graphs that share their memory, as no two of them run at once. The largest should come first.

    All warm-ups use one stream, as libraries keep a workspace for each stream that they have seen.
    """

    def __init__(self) -> None:
        self._pool = None
        self._warm_up_stream = torch.cuda.Stream()

    def __call__(self, compute: Compute) -> tuple[Callable[[], None], torch.Tensor]:
        stream = self._warm_up_stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()  # compile kernels and allocate workspaces: not allowed during a capture
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = compute()
        self._pool = graph.pool()
        return graph.replay, result


class DeviceBlockTables:
    """The block tables of the rows on the device, (G, capacity, N) int32. A step uploads what has changed.

    Stored span by span, so that the part in use is contiguous, however long the longest possible context is.
    """

    def __init__(self, capacity: int, width: int, num_groups: int, padding_block: int, device: torch.device) -> None:
        self._device = device
        self._host = np.full((width, num_groups, capacity), padding_block, np.int32)
        self._columns = upload(self._host, torch.int32, device).clone()
        self._held: list[list[int]] = [[] for _ in range(capacity)]

    def rows(self, num_rows: int) -> torch.Tensor:
        return self._columns.permute(1, 2, 0)[:, :num_rows]

    def fill(self, block_ids: list[list[int]]) -> None:
        """Set the blocks of the rows of a step. Entries behind them, and later rows, keep values of earlier steps."""
        last, num_groups = 0, self._host.shape[1]
        for row, blocks in enumerate(block_ids):
            held = self._held[row]
            if blocks == held:
                continue
            first = len(held) if blocks[: len(held)] == held else 0
            count = len(blocks) // num_groups
            # NOTE: padding rows read what is left in their row, so it must name blocks, also behind windows.
            new = np.maximum(np.array(blocks[first:]).reshape(-1, num_groups), 0)
            self._host[first // num_groups : count, :, row] = new
            self._held[row] = list(blocks)
            last = max(last, count)
        if last:
            self._columns[:last].copy_(upload(self._host[:last], torch.int32, self._device), non_blocking=True)


class DecodeGraph:
    """The graph of one row count R.

    Its inputs: (3 + G, R) int64, token ids, positions, contexts, and the slots of each cache group.
    """

    def __init__(
        self, decoder: Decoder, attention: XformersAttention, tables: DeviceBlockTables, num_rows: int, capture: Capture
    ) -> None:
        self.num_rows = num_rows
        self._device = attention.device
        self._padding = np.zeros((3 + attention.groups.count, num_rows), np.int64)
        self._padding[2], self._padding[3:] = 1, attention.padding_block * attention.block_size
        self._places = upload(self._padding, torch.int64, self._device).clone()
        token_ids, positions, contexts = self._places[:3]
        step = attention.fixed_rows(self._places[3:], contexts, tables.rows(num_rows))
        self._replay, self._result = capture(lambda: decoder.forward(token_ids, positions, step))

    def forward(self, places: np.ndarray, fed: DeviceTokens | None) -> torch.Tensor:
        """Replay with places (3 + G, n), n <= R; return hidden (n, E), valid until any graph is replayed."""
        num_used = places.shape[1]
        padded = self._padding.copy()
        padded[:, :num_used] = places
        self._places.copy_(upload(padded, torch.int64, self._device), non_blocking=True)
        if fed is not None:
            self._places[0, :num_used] = fed.token_ids.index_select(0, upload(fed.rows, torch.int64, self._device))
        self._replay()
        return self._result[:num_used]


class DecodeGraphs:
    """The graphs of a model, captured at construction. `table_width`: blocks of the longest context."""

    @torch.inference_mode()
    def __init__(
        self, decoder: Decoder, attention: XformersAttention, max_rows: int, table_width: int, capture: Capture
    ) -> None:
        started = perf_counter()
        self._groups = groups = attention.groups
        self._counts = row_counts(max_rows)
        self._tables = DeviceBlockTables(max_rows, table_width, groups.count, attention.padding_block, attention.device)
        graphs = [DecodeGraph(decoder, attention, self._tables, count, capture) for count in reversed(self._counts)]
        self._graphs = graphs[::-1]
        logger.info(
            "captured decode steps of %s rows in %.1f s", ", ".join(map(str, self._counts)), perf_counter() - started
        )

    def takes(self, plan: StepPlan) -> bool:
        """Return True for a step of plain decodes without adapters and media."""
        return len(plan.chunks) <= self._counts[-1] and all(
            chunk.samples
            and chunk.num_positions == 1
            and not chunk.sequence.adapter_index
            and chunk.start >= chunk.sequence.inputs_end
            for chunk in plan.chunks
        )

    @torch.inference_mode()
    def forward(self, plan: StepPlan, fed: DeviceTokens | None = None) -> torch.Tensor:
        """Return the hidden rows (R, E) of a step that `takes` accepts. `fed` replaces the known tokens as input."""
        chunks, block_size, num_groups = plan.chunks, self._groups.block_size, self._groups.count
        starts = [chunk.start for chunk in chunks]
        blocks = [chunk.sequence.block_ids for chunk in chunks]
        token_ids = (
            [0] * len(chunks)
            if fed
            else [chunk.sequence.token_slice(chunk.start, chunk.start + 1)[0] for chunk in chunks]
        )
        slots = [
            [
                ids[start // block_size * num_groups + group] * block_size + start % block_size
                for ids, start in zip(blocks, starts, strict=True)
            ]
            for group in range(num_groups)
        ]
        self._tables.fill(blocks)
        positions = [chunk.start + chunk.sequence.shift for chunk in chunks]
        places = np.array([token_ids, positions, starts, *slots])
        places[2] += 1
        return self._graphs[bisect_left(self._counts, len(chunks))].forward(places, fed)


def row_counts(most: int) -> list[int]:
    """Return 1, 2, 4, then multiples of 8 up to 64 and of 32 beyond, and `most`: little padding, few graphs."""
    counts = [1, 2, 4, *range(8, EIGHTS_UP_TO, 8), *range(EIGHTS_UP_TO, most, 32)]
    return [count for count in counts if count < most] + [most]
