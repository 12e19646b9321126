"""Spans of tokens that see each other in both directions, against dense attention with the same mask."""

from __future__ import annotations

import pytest
import torch

from engine.attention.backend import AttentionShape
from engine.attention.cache_groups import group_layers
from engine.attention.torch_cpu import TorchCpuAttention
from tests.engine.attention.scenario import PagedWorld

WIDE = AttentionShape(num_heads=6, num_kv_heads=2, head_size=64, scale=0.125)
FILLED = AttentionShape(num_heads=4, num_kv_heads=2, head_size=80, scale=0.1)
NARROW = AttentionShape(num_heads=4, num_kv_heads=4, head_size=8, scale=0.3)
TOLERANCE = 2e-5


def check(results):
    for result, expected in results:
        torch.testing.assert_close(result, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("window", [0, 21, 7, 300], ids=["all", "wider", "narrower", "widest"])
@pytest.mark.parametrize("shape", [WIDE, FILLED, NARROW], ids=["wide", "filled", "narrow"])
def test_spans_see_themselves_whole_and_what_lies_before(shape, window):
    shapes = [shape, AttentionShape(shape.num_heads, shape.num_kv_heads, shape.head_size, shape.scale, window)]
    groups = group_layers([0, window], [shape.num_kv_heads * shape.head_size] * 2, block_size=16, chunk_tokens=64)
    world = PagedWorld(shapes, num_blocks=96, block_size=16, groups=groups, seed=3)
    backend = TorchCpuAttention(shapes, num_blocks=96, block_size=16, dtype=torch.float32, groups=groups)
    for sequence in range(3):
        world.add(sequence, 120)
    check(world.step(backend, [(0, 37)], whole={0: ((5, 21),)}))
    check(world.step(backend, [(1, 30), (0, 40)], whole={0: ((37, 50), (52, 77)), 1: ((0, 30),)}))
    check(world.step(backend, [(2, 20)]))
    check(world.step(backend, [(2, 1), (0, 1), (1, 17)], whole={1: ((30, 46),)}))
    check(world.step(backend, [(0, 1), (1, 1)]))
