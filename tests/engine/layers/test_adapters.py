"""Adapters of rows beside plain torch: the kernels of a CPU, and torch on other devices."""

import pytest
import torch

from engine.kernels.cpu.low_rank import TILE_ROWS
from engine.layers.adapters import (
    AdapterRun,
    AdapterWeights,
    CpuAdapters,
    LowRank,
    ProjectionSize,
    TorchAdapters,
)
from tests.engine.threads import WAYS, threads_of

CPU = torch.device("cpu")
SIZES = [ProjectionSize(36, (70, 20, 20)), ProjectionSize(64, (128,)), ProjectionSize(100, (33, 33))]
RANKS = {1: [(3, 5, 2), (7,), (1, 16)], 2: [(16, 0, 16), (40,), (0, 0)], 3: [(0, 9, 0), (0,), (4, 4)]}
"""By index: the rank of each range of outputs of each projection; 0: it is not changed."""
RUNS = {
    "one row": [(1, 0, 1)],
    "rows of none between": [(2, 1, 1), (1, 3, 1), (2, 6, 1), (3, 8, 1), (1, 9, 2)],
    "prompts": [(1, 0, TILE_ROWS + 5), (2, TILE_ROWS + 5, 3), (1, TILE_ROWS + 9, 2)],
}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.2}
"""bfloat16 keeps eight bits of each number of A and B, of which up to 100 products are added."""


@pytest.fixture(params=WAYS, autouse=True)
def threads(request):
    with threads_of(request.param):
        yield


def weights(index):
    torch.manual_seed(index)
    by_place = {
        place: tuple(
            LowRank(torch.randn(rank, size.num_inputs), torch.randn(outputs, rank)) if rank else None
            for rank, outputs in zip(RANKS[index][place], size.num_outputs, strict=True)
        )
        for place, size in enumerate(SIZES)
        if any(RANKS[index][place])
    }
    return AdapterWeights(by_place, max(map(max, RANKS[index])), ())


def bound(adapters):
    for index in RANKS:
        adapters.bind(index, adapters.pack(weights(index)))
    return adapters


def expected(place, x, y, runs):
    """Compute y + x A^T B^T row by row."""
    y = y.clone()
    for index, first, num_rows in runs:
        start = 0
        for size, part in zip(SIZES[place].num_outputs, weights(index).by_place.get(place, ()), strict=False):
            if part is not None:
                y[first : first + num_rows, start : start + size] += (
                    x[first : first + num_rows] @ part.down.T @ part.up.T
                )
            start += size
    return y


def rows_of(place, num_rows=32):
    generator = torch.Generator().manual_seed(place)
    size = SIZES[place]
    return tuple(
        torch.randn(num_rows, width, generator=generator) for width in (size.num_inputs, sum(size.num_outputs))
    )


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("place", range(len(SIZES)))
@pytest.mark.parametrize("is_cpu", [True, False])
def test_rows_are_changed_by_their_adapters(runs, dtype, place, is_cpu):
    runs = [AdapterRun(*run) for run in RUNS[runs]]
    adapters = bound(CpuAdapters(SIZES, dtype) if is_cpu else TorchAdapters(SIZES, CPU, dtype))
    x, y = rows_of(place)
    found = adapters.begin_step(runs, len(x)).add(place, x, y.clone())
    error = (found - expected(place, x, y, runs)).abs().max()
    assert error <= TOLERANCE[dtype] * x.shape[1] ** 0.5


@pytest.mark.parametrize("place", range(len(SIZES)))
def test_a_row_is_the_same_alone_and_in_a_crowd_to_the_bit(place):
    adapters = bound(CpuAdapters(SIZES, torch.float32))
    x, y = rows_of(place)
    runs = [AdapterRun(1 + number % 3, number, 1) for number in range(32)]
    crowd = adapters.begin_step(runs, 32).add(place, x, y.clone())
    for number, (index, _, _) in enumerate(runs):
        alone = adapters.begin_step([AdapterRun(index, 0, 1)], 1).add(
            place, x[number : number + 1], y[number : number + 1].clone()
        )
        assert torch.equal(alone[0], crowd[number])


def test_an_index_that_is_free_changes_nothing_and_takes_another_adapter():
    adapters = bound(CpuAdapters(SIZES, torch.float32))
    x, y = rows_of(0)
    step = adapters.begin_step([AdapterRun(1, 0, 32)], 32)
    adapters.free(1)
    assert torch.equal(step.add(0, x, y.clone()), y)
    adapters.bind(1, adapters.pack(weights(2)))
    torch.testing.assert_close(step.add(0, x, y.clone()), expected(0, x, y, [AdapterRun(2, 0, 32)]), atol=1e-4, rtol=0)
