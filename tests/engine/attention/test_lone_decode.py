"""A sequence that decodes alone leaves the paged cache and comes back to it, and nobody can tell."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape
from engine.attention.lone_decode import PATIENCE, LoneStep
from engine.attention.torch_cpu import TorchCpuAttention
from tests.engine.attention.scenario import PagedWorld

SHAPE = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)


def make(seed=0, dtype=torch.float32, num_blocks=300):
    sizes = {"num_layers": 2, "num_blocks": num_blocks, "block_size": 4}
    return PagedWorld(SHAPE, seed=seed, **sizes), TorchCpuAttention(SHAPE, dtype=dtype, **sizes)


def check(results, tolerance=2e-5):
    for result, expected in results:
        torch.testing.assert_close(result, expected, atol=tolerance, rtol=0)


def watch(backend):
    """The kinds of step that the backend has made."""
    kinds, begin_step = [], backend.begin_step

    def begin(layout):
        step = begin_step(layout)
        kinds.append(type(step))
        return step

    backend.begin_step = begin
    return kinds


def test_the_dense_copy_is_used_after_a_few_steps_alone_and_grows():
    world, backend = make()
    kinds = watch(backend)
    world.add(0, 700)
    check(world.step(backend, [(0, 10)]))
    for _ in range(600):
        check(world.step(backend, [(0, 1)]))
    assert [kind is LoneStep for kind in kinds] == [False] * (1 + PATIENCE) + [True] * (600 - PATIENCE)


def test_what_was_computed_alone_is_there_for_all_that_follows():
    world, backend = make()
    world.add(0, 100)
    world.add(1, 100)
    check(world.step(backend, [(1, 9)]))
    check(world.step(backend, [(0, 9)]))
    for _ in range(12):
        check(world.step(backend, [(0, 1)]))
    check(world.step(backend, [(0, 1), (1, 1)]))
    for _ in range(12):
        check(world.step(backend, [(1, 1)]))
    check(world.step(backend, [(0, 5)]))
    world.add(2, 60, shares=(0, 5))
    check(world.step(backend, [(2, 1), (1, 1)]))
    for _ in range(6):
        check(world.step(backend, [(2, 1)]))


def test_blocks_that_change_hands_belong_to_the_new_owner():
    """The last owner's late write-back must not land on what the new one has written."""
    world, backend = make(num_blocks=12)
    for number in range(8):
        world.add(number, 40)
        check(world.step(backend, [(number, 5 + number % 3)]))
        for _ in range(8):
            check(world.step(backend, [(number, 1)]))
        if number % 2:
            check(world.step(backend, [(number, 3)]))
        world.drop(number)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_paged_cache_holds_every_position_after_a_write_back(dtype):
    world, backend = make(dtype=dtype)
    world.add(0, 60)
    world.step(backend, [(0, 7)])
    for _ in range(20):
        world.step(backend, [(0, 1)])
    world.step(backend, [(0, 2)])
    blocks = torch.tensor(world.blocks[0])
    keys = backend.keys[:, blocks].permute(0, 1, 4, 2, 3).flatten(1, 2)[:, :29]
    values = backend.values[:, blocks].transpose(2, 3).flatten(1, 2)[:, :29]
    assert torch.equal(keys, world.known[0][1][:, :29].to(dtype))
    assert torch.equal(values, world.known[0][2][:, :29].to(dtype))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.lists(st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(1, 7)), min_size=1, max_size=12))
def test_any_change_between_alone_and_together_agrees_with_the_oracle(seed, stretches):
    world, backend = make(seed)
    for sequence in range(3):
        world.add(sequence, 150)
        check(world.step(backend, [(sequence, 3 + 4 * sequence)]))
    for members, num_steps in stretches:
        for _ in range(num_steps):
            check(world.step(backend, [(sequence, 1) for sequence in sorted(members)]))
