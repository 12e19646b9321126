"""Attention over a cache in bfloat16: a row is the same whatever is computed beside it, and whichever threads do it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.cache_groups import group_layers
from engine.attention.torch_cpu import TorchCpuAttention
from engine.kernels.cpu import operators
from engine.kernels.cpu.threads import KERNEL_THREADS
from tests.engine.attention.scenario import SMALL, PagedWorld, dense_attention
from tests.engine.threads import WAYS, threads_of
from tests.examples import examples

COUNTS = [1, 2, 15, 16, 33, 97, 255, 256, 257]
"""New tokens of a step; flash attention has spans of 256 positions."""


@examples(24, deadline=None)
@given(st.data())
def test_rows_err_by_the_rounding_of_probabilities_and_are_the_same_alone(data):
    """Layers of different heads and windows over a cache in bfloat16, NaN wherever nothing was written.

    Queries, keys and values are rounded before. Probabilities have 8 bits, or more without flash attention.
    """
    draw = data.draw
    num_heads, scale = draw(st.sampled_from([1, 4, 6, 14, 16])), draw(st.sampled_from([0.1, 0.3, 2.0]))
    shapes = [
        AttentionShape(
            num_heads=num_heads,
            num_kv_heads=num_heads // draw(st.sampled_from([n for n in range(1, 17) if num_heads % n == 0])),
            head_size=draw(st.sampled_from([64, 80, 96, 112, 128, 192, 256, 512])),
            scale=scale,
            window=draw(st.sampled_from([0, 0, 1, 16, 40, 256, 300])),
            softcap=draw(st.sampled_from([0.0, 0.0, 3.0])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    sizes = [shape.num_kv_heads * operators.cached_size(shape.head_size, 16) for shape in shapes]
    groups = group_layers([shape.window for shape in shapes], sizes, block_size=16)
    room = {"num_blocks": 84 * groups.count, "block_size": 16, "groups": groups}
    backend = TorchCpuAttention(shapes, dtype=torch.bfloat16, **room)
    backend.keys.fill_(math.nan)
    backend.values.fill_(math.nan)
    world = PagedWorld(shapes, seed=draw(st.integers(0, 1000)), **room)
    sinks = torch.linspace(-2.0, 3.0, num_heads) if draw(st.booleans()) else None
    for sequence in range(2):
        world.add(sequence, 600)
        for part, tensors in enumerate(world.known[sequence]):
            for shape, tensor in zip(shapes, tensors, strict=True):
                factor = 1.0 if part else scale * (1.0 if shape.softcap else math.log2(math.e))
                tensor.copy_((tensor * factor).bfloat16().float() / factor)
    for _ in range(draw(st.integers(1, 3))):
        chosen = [(sequence, draw(st.sampled_from(COUNTS))) for sequence in draw(st.sampled_from([[0], [1], [0, 1]]))]
        plan = sorted(((s, n) for s, n in chosen if world.computed[s] + n <= 600), key=lambda part: part[1] > 1)
        if not plan:
            continue
        results = [result for result, _ in world.step(backend, plan, sinks)]
        first = 0
        for sequence, count in plan:
            for row in {0, count - 1, draw(st.integers(0, count - 1))}:
                found = [result[first + row] for result in results]
                check_row(world, backend, sequence, world.computed[sequence] - count + row, found, sinks)
            first += count


def check_row(world, backend, sequence, position, found, sinks):
    """Compare the results of one token, of each layer, with it alone and with attention in float64."""
    end = position + 1
    slots = torch.zeros(world.groups.count, 1, dtype=torch.int64)
    alone = backend.begin_step(StepLayout([1], [end], slots, [world.blocks[sequence]], 1))
    for layer, (shape, row) in enumerate(zip(world.shapes, found, strict=True)):
        q, k, v = (part[layer][:end] for part in world.known[sequence])
        assert torch.equal(alone.attend(layer, q[position:], None, None, sinks)[0], row)
        options = (shape.scale, shape.window, shape.softcap, None if sinks is None else sinks.double())
        q, k, v = q[position:].double(), k.double(), v.double()
        error = (row - dense_attention(q, k, v, *options)[0]).abs()
        assert (error <= 2**-8 * dense_attention(q, k, v.abs(), *options)[0] + 1e-4).all()


@pytest.mark.parametrize(
    ("shape", "has_sinks"),
    [
        (SMALL, False),
        (replace(SMALL, num_heads=10), True),
        (replace(SMALL, softcap=3.0), True),
        (replace(SMALL, window=300), False),
    ],
)
def test_rows_whose_heads_are_computed_together_are_as_alone(shape, has_sinks):
    """So they are where there are several rows a thread, but for one that has most of all contexts."""
    world = PagedWorld(shape, num_layers=1, num_blocks=300, block_size=16, seed=0)
    backend = TorchCpuAttention([shape], num_blocks=300, block_size=16, dtype=torch.bfloat16)
    sinks = torch.linspace(-2.0, 3.0, shape.num_heads) if has_sinks else None
    lengths = [1, 2, 16, 17, 256, 257, 300, 600, 2500]
    for sequence, length in enumerate(lengths):
        world.add(sequence, length)
        for part, tensors in enumerate(world.known[sequence]):
            factor = 1.0 if part else shape.scale * (1.0 if shape.softcap else math.log2(math.e))
            tensors[0].copy_((tensors[0] * factor).bfloat16().float() / factor)
        if length > 1:
            world.step(backend, [(sequence, length - 1)], sinks)
    ((result, _),) = world.step(backend, [(sequence, 1) for sequence in range(len(lengths))], sinks)
    for sequence, length in enumerate(lengths):
        check_row(world, backend, sequence, length - 1, [result[sequence]], sinks)


@pytest.mark.parametrize("way", [*WAYS, 7])
@pytest.mark.parametrize(
    ("shape", "has_sinks"),
    [(SMALL, True), (replace(SMALL, window=1500), True), (replace(SMALL, num_kv_heads=4), False)],
)
def test_a_row_is_the_same_whichever_threads_share_its_pieces(shape, has_sinks, way):
    """A row of 4,000 positions alone, beside another, and in a tile. Its pieces are merged in their order."""
    context, num_new, block_size = 4003, 40, 16
    table, none = list(range(-(-context // block_size))), torch.zeros(1, 2, dtype=torch.int64)
    generator = torch.Generator().manual_seed(1)
    backend = TorchCpuAttention([shape], num_blocks=len(table), block_size=block_size, dtype=torch.bfloat16)
    for cache in (backend.keys, backend.values):
        cache.copy_(torch.randn(cache.shape, generator=generator))
    q = 3 * torch.randn(num_new, shape.num_heads, shape.head_size, generator=generator)
    sinks = torch.linspace(-2.0, 3.0, shape.num_heads) if has_sinks else None
    slots = torch.zeros(1, num_new, dtype=torch.int64)
    tile = backend.begin_step(StepLayout([num_new], [context], slots, [table], 0)).attend(0, q, None, None, sinks)
    first = context - num_new + 1
    with threads_of(way):
        for _ in range(3):
            alone = backend.begin_step(StepLayout([1], [context], none[:, :1], [table], 1))
            assert torch.equal(alone.attend(0, q[-1:], None, None, sinks), tile[-1:])
            two = backend.begin_step(StepLayout([1, 1], [first, context], none, [table, table], 2))
            assert torch.equal(two.attend(0, q[[0, -1]], None, None, sinks), tile[[0, -1]])


@pytest.mark.parametrize("way", WAYS)
def test_a_recording_shares_the_pieces_of_other_rows_each_time(way):
    """Its memory is that of the longest context; it runs over longer and shorter ones, and fewer rows."""
    table_width = 300
    backend = TorchCpuAttention([SMALL] * 2, num_blocks=table_width, block_size=16, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    for cache in (backend.keys, backend.values):
        cache.copy_(torch.randn(cache.shape, generator=generator))
    table = list(range(table_width))
    with threads_of(way):
        q = torch.zeros(3, SMALL.num_heads, SMALL.head_size)
        step = backend.fixed_rows(3, table_width)
        with operators.recording() as recording:
            found = [step.attend(layer, q, None, None) for layer in range(2)]
        for contexts in ([4003, 1500, 900], [3000], [100, 4700], [4003], [1025, 1024, 2049]):
            count = len(contexts)
            layout = StepLayout([1] * count, contexts, torch.zeros(1, count, dtype=torch.int64), [table] * count, count)
            q[:count] = torch.randn(count, SMALL.num_heads, SMALL.head_size, generator=generator)
            step.fill(layout)
            recording.run(count)
            with KERNEL_THREADS.single_threaded():
                expected = [backend.begin_step(layout).attend(layer, q[:count], None, None) for layer in range(2)]
            for result, one in zip(found, expected, strict=True):
                assert torch.equal(result[:count], one)
