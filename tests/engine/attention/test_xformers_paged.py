"""The CUDA backend on a CPU: masks against the dense rule, index tensors, and each product against the CPU backend.

Without a device our kernels run in Triton's interpreter, and chunks use the implementation that works on a CPU.
test_chunk_attention.py tests all implementations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.attention import xformers_paged
from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.cache_groups import CacheGroups, group_layers
from engine.attention.torch_cpu import TorchCpuAttention
from engine.attention.xformers_paged import (
    XformersAttention,
    as_stored,
    block_tables,
    context_slots,
    gathered_together,
    split_into_rows,
)
from tests.engine.attention.scenario import PagedWorld, dense_attention

pytestmark = pytest.mark.interpreted
GROUPED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
FULL = AttentionShape(num_heads=4, num_kv_heads=4, head_size=32, scale=0.2)
WINDOWED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25, window=11)
CAPPED = AttentionShape(num_heads=4, num_kv_heads=2, head_size=16, scale=1.0, window=3, softcap=2.0)
CPU = torch.device("cpu")
SCHEDULE = [
    [(0, 20), (1, 9)],
    [(0, 1), (1, 1), (2, 30)],
    [(1, 1), (0, 1), (2, 41), (3, 17)],
    [(3, 1), (0, 1), (1, 1), (2, 1)],
]

SHORT_SCHEDULE = [[(0, 3), (1, 2)], [(1, 1), (0, 4)]]
"""Where every token is a row, a long one keeps the interpreter busy for half a minute."""


def backends(shape, device=CPU, dtype=torch.float32, **options):
    sizes = {"num_blocks": 96, "block_size": 16}
    return (
        PagedWorld(shape, num_layers=2, **sizes),
        XformersAttention([shape] * 2, device=device, dtype=dtype, **sizes, **options),
        PagedWorld(shape, num_layers=2, **sizes),
        TorchCpuAttention([shape] * 2, dtype=torch.float32, **sizes, **options),
    )


@pytest.mark.parametrize("shape", [GROUPED, FULL, WINDOWED, CAPPED], ids=["grouped", "full", "windowed", "capped"])
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_both_backends_agree_on_the_same_steps(shape, batch_invariant):
    world, cuda, twin_world, cpu = backends(shape, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
        twin_world.add(sequence, 120)
    for plan in SHORT_SCHEDULE if cuda.splits else SCHEDULE:
        for (ours, expected), (theirs, _) in zip(world.step(cuda, plan), twin_world.step(cpu, plan), strict=True):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


def test_groups_of_layers_share_one_pool_of_blocks():
    """Blocks behind a window go to other sequences and layers. By rows and by gathered chunks."""
    shapes = [WINDOWED, GROUPED, WINDOWED]
    groups = group_layers([11, 0, 11], [1] * 3, block_size=16)
    assert groups.windows == (0, 11, 11)
    sizes = {"num_blocks": 96, "block_size": 16, "groups": groups}
    cuda, world = XformersAttention(shapes, device=CPU, dtype=torch.float32, **sizes), PagedWorld(shapes, **sizes)
    for sequence in range(4):
        world.add(sequence, 120)
    for plan in SCHEDULE:
        for ours, expected in world.step(cuda, plan):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_an_eight_bit_cache_returns_representable_values_exactly(batch_invariant):
    """By rows and by chunks."""
    world, cuda, _, _ = backends(GROUPED, dtype=torch.float8_e4m3fn, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
        q, *stored = world.known[sequence]
        world.known[sequence] = (q, *([part.to(torch.float8_e4m3fn).float() for part in parts] for parts in stored))
    for plan in SHORT_SCHEDULE if batch_invariant else SCHEDULE:
        for ours, expected in world.step(cuda, plan):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)


def test_eight_bit_values_saturate():
    numbers = torch.tensor([1e9, -1e9, 449.0, 3.3])
    assert as_stored(numbers, torch.float8_e4m3fn).float().tolist() == [448.0, -448.0, 448.0, 3.25]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [GROUPED, FULL], ids=["grouped", "full"])
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_the_kernels_agree_with_the_oracle(shape, batch_invariant):
    """bfloat16 keys, values and outputs of standard normal inputs carry 8 bits."""
    device = torch.device("cuda")
    world, cuda, _, _ = backends(shape, device, torch.bfloat16, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
        world.known[sequence] = tuple(
            [part.to(torch.bfloat16).float() for part in parts] for parts in world.known[sequence]
        )
    for plan in SCHEDULE:
        for ours, expected in world.step(OnDevice(cuda, device), plan):
            torch.testing.assert_close(ours.float().cpu(), expected, atol=0.03, rtol=0.02)


class OnDevice:
    """Carries the scenario's CPU tensors to the device."""

    def __init__(self, backend, device):
        self._backend, self._device = backend, device

    def begin_step(self, layout):
        self._step = self._backend.begin_step(replace(layout, slots=layout.slots.to(self._device)))
        return self

    def attend(self, layer, *parts):
        return self._step.attend(layer, *(part.to(self._device) for part in parts))


def test_long_contexts_are_gathered_a_few_at_a_time(monkeypatch):
    """A hundred requests with a long shared prefix once copied all their contexts at once in every layer."""
    monkeypatch.setattr(xformers_paged, "MOST_GATHERED", 64)
    world, cuda, _, _ = backends(GROUPED)
    for sequence in range(4):
        world.add(sequence, 120)
    for plan in SCHEDULE:
        for ours, expected in world.step(cuda, plan):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        ([40_000, 20_000, 9_000], [2, 1]),
        ([90_000, 10], [1, 1]),
        ([10, 90_000, 10], [1, 1, 1]),
        ([5], [1]),
        ([1] * 1000, [1000]),
    ],
)
def test_contexts_are_grouped_up_to_the_limit_with_at_least_one_each(contexts, expected):
    groups = gathered_together(contexts)
    assert [len(contexts[group]) for group in groups] == expected
    assert [place for group in groups for place in range(len(contexts))[group]] == list(range(len(contexts)))


def test_the_table_is_padded():
    groups = CacheGroups(16, windows=(0, 20))
    assert block_tables([33, 5], [[4, -1, 2, 1, 6, 3, 9, 5], [7, 8]], groups).tolist() == [
        [[4, 2, 6], [7, 0, 0]],
        [[-1, 1, 3], [8, 0, 0]],
    ]


def test_the_slots_of_contexts_follow_each_other():
    tables = [np.array([3, 1]), np.array([-1, 2])]
    assert context_slots([0, 5], [5, 7], tables, 4).tolist() == [12, 13, 14, 15, 4, 9, 10]


def test_each_row_of_a_step_sees_one_more_position():
    assert split_into_rows([1, 3], [9, 20], [[1], [2, 3]]) == ([1] * 4, [9, 18, 19, 20], [[1], [2, 3], [2, 3], [2, 3]])


def test_an_unsupported_head_size_is_refused_by_name():
    with pytest.raises(ModelLoadError, match="heads on CUDA"):
        XformersAttention(
            [AttentionShape(2, 2, 100, 1.0)], device=CPU, num_blocks=4, block_size=16, dtype=torch.bfloat16
        )


def test_fixed_rows_reread_their_block_tables_every_step():
    """Captured graphs rely on this: a step is built once and its buffers are filled before each use."""
    world, cuda, _, _ = backends(GROUPED)
    for sequence in range(2):
        world.add(sequence, 60)
    world.step(cuda, [(0, 20), (1, 40)])
    slots, contexts = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    table = torch.full((4, 4), cuda.padding_block, dtype=torch.int32)
    step = cuda.fixed_rows(slots[None], contexts, table[None])
    for order in ([0, 1], [1, 0]):
        slots.fill_(cuda.padding_block * 16)
        contexts.fill_(1)
        before = cuda.keys[:, :-16].clone()
        places = {}
        for row, sequence in enumerate(order):
            position = world.computed[sequence]
            blocks = world.blocks[sequence]
            places[row] = slots[row] = blocks[position // 16] * 16 + position % 16
            contexts[row] = position + 1
            table[row, : len(blocks)] = torch.tensor(blocks)
        parts = [[world.known[sequence][i][0][world.computed[sequence]] for sequence in order] for i in range(3)]
        q, k, v = (torch.stack(part + part) for part in parts)
        found = step.attend(0, q, k, v)[:2]
        for row, sequence in enumerate(order):
            end = world.computed[sequence] + 1
            known = world.known[sequence]
            expected = dense_attention(known[0][0][end - 1 : end], known[1][0][:end], known[2][0][:end], GROUPED.scale)
            torch.testing.assert_close(found[row], expected[0], atol=2e-5, rtol=0)
            world.computed[sequence] = end
        changed = (cuda.keys[:, :-16] != before).flatten(2).any(2).any(0).nonzero().flatten()
        assert set(changed.tolist()) == {int(place) for place in places.values()}


def test_heads_are_rotated_before_they_are_stored():
    """The fused kernel equals rotation, storing and attention one after another."""
    _, fused, _, plain = backends(GROUPED)
    generator = torch.Generator().manual_seed(1)
    heads = torch.randn(20, 10, 16, generator=generator)
    angles = torch.randn(20, 1, 8, generator=generator)
    rotations = torch.polar(torch.ones_like(angles), angles)
    layout = StepLayout([20], [20], torch.arange(16, 36)[None], [[1, 2]], 0)
    rotated = torch.view_as_real(torch.view_as_complex(heads[:, :8].unflatten(-1, (-1, 2))) * rotations).flatten(-2)
    turned = torch.cat((rotated, heads[:, 8:]), dim=1)  # the parts are views of one buffer, as the layer gives them
    expected = plain.begin_step(layout).attend(1, turned[:, :6], turned[:, 6:8], turned[:, 8:])
    found = fused.begin_step(layout).attend_heads(1, heads.clone(), rotations)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_sinks_take_probability_and_give_no_value(batch_invariant):
    world, cuda, _, _ = backends(GROUPED, batch_invariant=batch_invariant)
    sinks = torch.linspace(-1.0, 3.0, GROUPED.num_heads)
    world.add(0, 120)
    for _ in range(3):
        for ours, expected in world.step(cuda, [(0, 1)], sinks):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)
