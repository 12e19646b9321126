"""Paged attention on CPU against a dense float32 oracle, over every kind of step."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape
from engine.attention.cache_groups import group_layers
from engine.attention.torch_cpu import FEW_ROWS, TorchCpuAttention
from engine.kernels.cpu import operators
from tests.engine.attention import scenario
from tests.engine.attention.scenario import SMALL, PagedWorld
from tests.engine.threads import threads_of
from tests.examples import examples

GROUPED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=16**-0.5)
FULL = AttentionShape(num_heads=4, num_kv_heads=4, head_size=32, scale=0.2)
WIDE = AttentionShape(num_heads=6, num_kv_heads=2, head_size=64, scale=0.125)
"""The only shape that uses the kernel's explicit vectors, with blocks of 16."""
WINDOWED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=64, scale=0.125, window=21)
CAPPED = AttentionShape(num_heads=4, num_kv_heads=2, head_size=16, scale=1.0, window=40, softcap=3.0)
FILLED = AttentionShape(num_heads=4, num_kv_heads=2, head_size=80, scale=0.1, window=40)
"""Its heads lie in the cache as heads of 128, which the vectors take."""
SHAPES = {"grouped": GROUPED, "full": FULL, "wide": WIDE, "windowed": WINDOWED, "capped": CAPPED, "filled": FILLED}
TOLERANCE = 2e-5
"""Both sides are float32 and differ in the order of additions only."""


def make(
    shape=GROUPED, *, block_size=16, num_blocks=96, num_layers=2, dtype=torch.float32, batch_invariant=False, seed=0
):
    world = PagedWorld(shape, num_layers=num_layers, num_blocks=num_blocks, block_size=block_size, seed=seed)
    backend = TorchCpuAttention(
        [shape] * num_layers,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=dtype,
        batch_invariant=batch_invariant,
    )
    return world, backend


def check(results, tolerance=TOLERANCE):
    for result, expected in results:
        torch.testing.assert_close(result, expected, atol=tolerance, rtol=0)


shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
block_sizes = pytest.mark.parametrize("block_size", [4, 16, 32])


@shapes
@block_sizes
def test_a_prompt_and_single_tokens_match_dense_attention(shape, block_size):
    world, backend = make(shape, block_size=block_size)
    world.add(0, 80)
    check(world.step(backend, [(0, 37)]))
    for _ in range(20):
        check(world.step(backend, [(0, 1)]))


@shapes
@block_sizes
def test_decodes_of_very_different_lengths_match_dense_attention(shape, block_size):
    world, backend = make(shape, block_size=block_size, num_blocks=400)
    lengths = [1, 3, 16, 17, 33, 150, 160, 300, 2]
    for sequence, length in enumerate(lengths):
        world.add(sequence, length + 3)
        check(world.step(backend, [(sequence, length)]))
    for _ in range(3):
        check(world.step(backend, [(sequence, 1) for sequence in range(len(lengths))]))


@shapes
@block_sizes
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_prompt_chunks_beside_other_sequences_match_dense_attention(shape, block_size, batch_invariant):
    world, backend = make(shape, block_size=block_size, num_blocks=200, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
    check(world.step(backend, [(0, 20), (1, 9)]))
    check(world.step(backend, [(0, 1), (1, 1), (2, 30)]))
    check(world.step(backend, [(1, 1), (0, 1), (2, 41), (3, 17)]))
    check(world.step(backend, [(3, 1), (0, 1), (1, 1), (2, 7)]))
    check(world.step(backend, [(sequence, 1) for sequence in range(4)]))


def test_a_prefix_hit_reads_the_blocks_of_another_sequence():
    world, backend = make()
    world.add(0, 100)
    check(world.step(backend, [(0, 50)]))
    world.add(1, 100, shares=(0, 3))
    check(world.step(backend, [(0, 1), (1, 12)]))
    world.add(2, 100, shares=(1, 3))
    check(world.step(backend, [(2, 1), (1, 1), (0, 1)]))


@examples(40)
@given(st.data())
def test_any_schedule_over_shuffled_and_shared_blocks_matches_dense_attention(data):
    block_size = data.draw(st.sampled_from([4, 16]))
    world, backend = make(
        data.draw(st.sampled_from(list(SHAPES.values()))),
        block_size=block_size,
        num_blocks=600,
        num_layers=1,
        batch_invariant=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 1000)),
    )
    live: list[int] = []
    for number in range(data.draw(st.integers(1, 6))):
        donors = [s for s in live if world.computed[s] >= block_size]
        shares = None
        if donors and data.draw(st.booleans()):
            other = data.draw(st.sampled_from(donors))
            shares = (other, data.draw(st.integers(1, min(3, world.computed[other] // block_size))))
        world.add(number, 400, shares=shares)
        live.append(number)
        chosen = data.draw(st.lists(st.sampled_from(live), unique=True, min_size=1))
        plan = [(s, data.draw(st.sampled_from([1, 1, 2, 5, block_size, 17, 40]))) for s in chosen]
        check(world.step(backend, sorted(plan, key=lambda part: part[1] > 1)))


MANY = AttentionShape(num_heads=14, num_kv_heads=2, head_size=64, scale=0.125)
"""Seven query heads share a kv head: more than the kernel takes at once."""


@pytest.mark.parametrize("shape", [*SHAPES.values(), MANY], ids=[*SHAPES, "many"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_new_tokens_together_are_bit_equal_to_one_by_one(shape, dtype):
    """Any number of rows may share a tile, across block borders and beside other sequences."""

    def run(lengths):
        world, backend = make(shape, dtype=dtype, num_blocks=200, num_layers=1, seed=4)
        for sequence, start in enumerate((13, 30)):
            world.add(sequence, 150)
            world.step(backend, [(sequence, start)])
        rows = []
        for length in lengths:
            ((result, _),) = world.step(backend, [(1, 1), (0, length)] if length > 1 else [(0, 1), (1, 1)])
            rows.append(result[1:] if length > 1 else result[:1])
        return torch.cat(rows)

    alone = run([1] * (17 + 5 + 2 + FEW_ROWS))
    assert torch.equal(run([17, 5, 2, FEW_ROWS]), alone)


NARROW = AttentionShape(num_heads=8, num_kv_heads=1, head_size=128, scale=128**-0.5)
PLAIN = AttentionShape(num_heads=2, num_kv_heads=2, head_size=64, scale=0.125)
ODD = AttentionShape(num_heads=4, num_kv_heads=2, head_size=80, scale=0.1)
"""The kernel has no vectors for these heads."""
VECTORS = {"wide": WIDE, "windowed": WINDOWED, "many": MANY, "narrow": NARROW, "plain": PLAIN}

prompt_shapes = pytest.mark.parametrize("shape", [*VECTORS.values(), ODD], ids=[*VECTORS, "odd"])
vector_shapes = pytest.mark.parametrize("shape", VECTORS.values(), ids=VECTORS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@prompt_shapes
@dtypes
def test_prompt_chunks_attend_to_their_past_beside_other_sequences(shape, dtype):
    """With more rows than drafts have; later chunks have a context that ends within a block."""
    world, backend = make(shape, num_blocks=60, num_layers=1, dtype=dtype)
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05
    for sequence in range(3):
        world.add(sequence, 200)
    check(world.step(backend, [(0, FEW_ROWS + 1)]), tolerance)
    check(world.step(backend, [(0, 100), (1, 47)]), tolerance)
    check(world.step(backend, [(1, 1), (0, FEW_ROWS + 1), (2, 120)]), tolerance)


def test_a_row_of_two_thousand_positions_matches_dense_attention():
    world, backend = make(PLAIN, num_blocks=130, num_layers=1)
    world.add(0, 2050)
    for count in (1970, 40, 1):
        check(world.step(backend, [(0, count)]))


@vector_shapes
@dtypes
def test_vector_kernels_give_bit_equal_results_in_any_chunking(shape, dtype):
    """Without `batch_invariant`, too: beside another prompt, over any context, in tiles of any height."""

    def run(lengths):
        world, backend = make(shape, dtype=dtype, num_blocks=20, num_layers=1, seed=7)
        world.add(0, 60)
        world.add(1, 150)
        world.step(backend, [(0, 13)])
        rows = []
        for length in lengths:
            beside = [(1, FEW_ROWS + 3)] if length > 1 else []
            ((result, _),) = world.step(backend, [(0, length), *beside])
            rows.append(result[:length])
        return torch.cat(rows)

    alone = run([1] * 41)
    for lengths in ([41], [3, 38], [FEW_ROWS + 1, 1, 7], [5, 36]):
        assert torch.equal(run(lengths), alone)


@vector_shapes
@dtypes
@pytest.mark.parametrize("broken", [0, 1, 2], ids=["query", "key", "value"])
def test_nan_in_a_prompt_reaches_only_rows_that_attend_to_it(shape, broken, dtype):
    def run(is_broken):
        world, backend = make(shape, num_layers=1, num_blocks=16, dtype=dtype)
        world.add(0, 120)
        world.step(backend, [(0, 10)])
        if is_broken:
            for part in world.known[0][broken]:
                part[60] = float("nan")
        ((result, _),) = world.step(backend, [(0, 100)])
        return result

    found, sound = run(True), run(False)
    end = 50 + (shape.window or 50)
    sees = [row == 50 if broken == 0 else 50 <= row < end for row in range(100)]
    assert torch.equal(found.isnan().all(-1).all(-1), torch.tensor(sees))
    assert torch.equal(found[~torch.tensor(sees)], sound[~torch.tensor(sees)])


class RecordedRows:
    """A backend of one layer whose steps are runs of one recording, over fixed rows."""

    def __init__(self, backend, shape, num_rows, table_width=20):
        self._rows = backend.fixed_rows(num_rows, table_width)
        counts = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
        self._given = [torch.zeros(num_rows, count, shape.head_size) for count in counts]
        with operators.recording() as self._recording:
            self._out = self._rows.attend(0, *self._given)

    def begin_step(self, layout):
        self._rows.fill(layout)
        return self

    def attend(self, layer, *given):
        for fixed, tensor in zip(self._given, given, strict=True):
            fixed[: len(tensor)] = tensor
        self._recording.run(len(given[0]))
        return self._out[: len(given[0])].clone()


@vector_shapes
@dtypes
def test_a_recording_over_fixed_rows_computes_steps_of_any_kind(shape, dtype):
    """A prompt chunk has higher tiles than drafts; the kernel's workspace must fit them."""
    size = FEW_ROWS + 8
    (world, backend), (other, direct) = (make(shape, num_blocks=40, num_layers=1, dtype=dtype) for _ in range(2))
    recorded = RecordedRows(backend, shape, size)
    for sequence in range(2):
        world.add(sequence, 300)
        other.add(sequence, 300)
    steps = [[(0, size)], [(0, 1), (1, 7)], [(0, 1), (1, 1)], [(1, 1), (0, size - 1)], *[[(0, size)]] * 5]
    for plan in steps:
        ((found, expected),), ((alike, _),) = world.step(recorded, plan), other.step(direct, plan)
        check([(found, expected)], TOLERANCE if dtype is torch.float32 else 0.05)
        assert torch.equal(found, alike)


@dtypes
def test_tiles_of_fewer_threads_than_were_recorded_fit_the_workspace(dtype):
    """A thread alone has larger tiles of the same step."""
    size = 512
    (world, backend), (other, direct) = (make(WIDE, num_blocks=40, num_layers=1, dtype=dtype) for _ in range(2))
    with threads_of(2):
        recorded = RecordedRows(backend, WIDE, size, table_width=40)
        world.add(0, 600)
        other.add(0, 600)
        ((alike, _),) = other.step(direct, [(0, size)])
    with threads_of(1):
        ((found, _),) = world.step(recorded, [(0, size)])
    assert torch.equal(found, alike)


@shapes
@dtypes
def test_a_nan_draft_does_not_affect_the_tokens_before_it(shape, dtype):
    def run(is_broken):
        world, backend = make(shape, num_layers=1, dtype=dtype)
        world.add(0, 60)
        world.step(backend, [(0, 14)])
        if is_broken:
            for part in world.known[0][2]:
                part[17:] = float("nan")
        ((result, _),) = world.step(backend, [(0, 6)])
        return result

    broken, sound = run(True), run(False)
    assert torch.equal(broken[:3], sound[:3])
    assert torch.isnan(broken[3:]).all()


@shapes
def test_a_bfloat16_cache_agrees_within_its_precision(shape):
    """Keys and values carry 8 bits; inputs are standard normal."""
    world, backend = make(shape, dtype=torch.bfloat16, num_blocks=96)
    for sequence in range(3):
        world.add(sequence, 120)
    check(world.step(backend, [(0, 30), (1, 64), (2, 5)]), 0.05)
    check(world.step(backend, [(1, 1), (0, 9), (2, 33)]), 0.05)
    check(world.step(backend, [(0, 1), (1, 1), (2, 1)]), 0.05)


@shapes
def test_batch_invariant_rows_are_equal_bit_for_bit_alone_in_a_crowd_and_under_any_chunking(shape):
    def run(schedule):
        world, backend = make(shape, batch_invariant=True, num_blocks=200, seed=3)
        for sequence in range(5):
            world.add(sequence, 150)
        rows = []
        for plan in schedule:
            first = (
                sum(num_new for sequence, num_new in plan[: [s for s, _ in plan].index(0)]) if 0 in dict(plan) else None
            )
            results = world.step(backend, plan)
            if first is not None:
                rows.append(torch.stack([result[first : first + dict(plan)[0]] for result, _ in results]))
        return torch.cat(rows, 1)

    alone = run([[(0, 60)], [(0, 1)], [(0, 1)]])
    chunked = run([[(0, 7)], [(0, 1)], [(0, 52)], [(0, 2)]])
    crowd = run(
        [
            [(1, 150)],
            [(2, 9), (0, 33), (3, 20)],
            [(2, 1), (0, 27), (4, 100)],
            [(2, 1), (0, 1), (3, 1), (4, 1)],
            [(0, 1), (2, 1)],
        ]
    )
    assert torch.equal(alone, chunked)
    assert torch.equal(alone, crowd)


@shapes
@dtypes
def test_numbers_of_other_sequences_are_never_read(shape, dtype):
    """Padding must not touch them: 0 times not-a-number would be not-a-number. Blocks that are taken next hold what
    other sequences left there, behind heads that are filled up too.
    """
    world, backend = make(shape, dtype=dtype)
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05
    for sequence, length in enumerate([5, 90, 31]):
        world.add(sequence, 120)
        check(world.step(backend, [(sequence, length)]), tolerance)
    owned = {block for blocks in world.blocks.values() for block in blocks}
    foreign = torch.tensor([block for block in range(world.num_blocks) if block not in owned])
    backend.keys[:, foreign] = float("nan")
    backend.values[:, foreign] = float("nan")
    check(world.step(backend, [(0, 1), (1, 1), (2, 1)]), tolerance)
    check(world.step(backend, [(1, 1), (2, 9)]), tolerance)


@shapes
@dtypes
def test_sinks_take_probability_and_give_no_value(shape, dtype):
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05
    world, backend = make(shape, batch_invariant=True, dtype=dtype)
    world.add(0, 80)
    sinks = torch.linspace(-1.0, 3.0, shape.num_heads)
    check(world.step(backend, [(0, 37)], sinks), tolerance)
    for _ in range(20):
        check(world.step(backend, [(0, 1)], sinks), tolerance)


@dtypes
def test_a_sink_of_minus_infinity_takes_nothing(dtype):
    """Not even from rows that are computed beside others, over positions that only those see."""
    world, backend = make(replace(MANY, window=20), dtype=dtype)
    world.add(0, 300)
    sinks = torch.full((MANY.num_heads,), -math.inf)
    check(world.step(backend, [(0, 300)], sinks), TOLERANCE if dtype is torch.float32 else 0.05)


LONG_WINDOW = AttentionShape(num_heads=6, num_kv_heads=2, head_size=64, scale=0.125, window=300)
LONG_CAPPED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=64, scale=0.125, window=70, softcap=3.0)
WIDEST = AttentionShape(num_heads=2, num_kv_heads=1, head_size=256, scale=0.0625)


@pytest.mark.parametrize("shape", [WIDE, MANY, LONG_WINDOW, LONG_CAPPED, WIDEST])
@dtypes
def test_long_prompts_cut_anywhere_are_bit_equal_and_match_dense_attention(shape, dtype):
    """Over several spans of positions and windows that begin within one."""
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05

    def run(lengths):
        world, backend = make(shape, dtype=dtype, num_blocks=50, num_layers=1, seed=5)
        world.add(0, 700)
        rows = []
        for length in lengths:
            ((result, expected),) = world.step(backend, [(0, length)])
            torch.testing.assert_close(result, expected, atol=tolerance, rtol=0)
            rows.append(result)
        return torch.cat(rows)

    whole = run([650])
    for lengths in ([255, 1, 1, 3, 390], [256, 10, 384], [1, 511, 40, 98]):
        assert torch.equal(run(lengths), whole)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_rows_in_fixed_memory_take_what_contexts_use_of_the_longest():
    """The tables of a model with 7 groups and a context of 131,072 tokens took 450 MiB."""

    def resident():
        return next(
            int(line.split()[1]) << 10
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("RssAnon")
        )

    _, backend = make()
    before = resident()
    kept = backend.fixed_rows(512, 1 << 16)
    assert resident() - before < 32 << 20
    assert kept


@dtypes
def test_groups_of_layers_share_one_pool_of_blocks(dtype):
    """Blocks behind a window go to other sequences and layers, which write into them at once."""
    shapes = [WINDOWED, WIDE, replace(WIDE, window=33), WINDOWED, WINDOWED]
    windows = [shape.window for shape in shapes]
    groups = group_layers(windows, [1] * 5, block_size=16)
    assert groups.windows == (0, 21, 21, 21, 33)
    sizes = {"num_blocks": 96, "block_size": 16, "groups": groups}
    backend = TorchCpuAttention(shapes, dtype=dtype, **sizes)
    world = PagedWorld(shapes, **sizes)
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05
    for sequence, length in enumerate([70, 5, 90, 31]):
        world.add(sequence, 140)
        check(world.step(backend, [(sequence, length)]), tolerance)
    check(world.step(backend, [(3, 1), (1, 60), (0, 20)]), tolerance)
    for _ in range(20):
        check(world.step(backend, [(3, 1), (1, 1), (0, 1), (2, 1)]), tolerance)


def test_layers_may_differ_in_their_windows():
    windows = [WINDOWED, WIDE]
    alone = [make(shape, num_layers=1) for shape in windows]
    both = TorchCpuAttention(windows, num_blocks=96, block_size=16, dtype=torch.float32)
    world = PagedWorld(WIDE, num_layers=2, num_blocks=96, block_size=16)
    world.add(0, 80)
    results = [result for result, _ in world.step(both, [(0, 60)])]
    for layer, (other, backend) in enumerate(alone):
        other.add(0, 80)
        other.known[0] = tuple([part[layer]] for part in world.known[0])
        ((expected, _),) = other.step(backend, [(0, 60)])
        assert torch.equal(results[layer], expected)


@dtypes
def test_blocks_behind_a_window_are_never_read(dtype, monkeypatch):
    """Their ids in the table are no places in memory."""
    monkeypatch.setattr(scenario, "NO_BLOCK", 1 << 40)
    windowed = AttentionShape(num_heads=4, num_kv_heads=2, head_size=64, scale=0.125, window=40)
    shapes = [windowed, replace(windowed, window=0)]
    groups = group_layers([40, 0], [1, 1], block_size=16)
    sizes = {"num_blocks": 96, "block_size": 16, "groups": groups}
    backend = TorchCpuAttention(shapes, dtype=dtype, **sizes)
    world = PagedWorld(shapes, **sizes)
    world.add(0, 500)
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05
    for count in (130, 100, 1, 60, 5, 1):
        check(world.step(backend, [(0, count)]), tolerance)


@pytest.mark.parametrize("shape", [SMALL, MANY, replace(SMALL, softcap=3.0), replace(SMALL, window=300)])
@dtypes
def test_scores_of_any_size_are_weighed_as_in_dense_attention(shape, dtype):
    """Far below what is kept of a sum, equal for a whole context, and huge."""
    world, backend = make(shape, dtype=dtype, num_blocks=50, num_layers=1)
    world.add(0, 700)
    (q,), (k,), (v,) = world.known[0]
    for tensor in (q, k, v):
        tensor.copy_(tensor.bfloat16())
    q[..., 0] = 8.0
    k[:, :, 1:] = 0.0
    k[:250, :, 0] = 100.0
    k[250:300, :, 0] = -(2.0**100)
    k[300:520, :, 0] = 0.0
    k[520:, :, 0] = 100.0 - torch.arange(180)[:, None] % 7 * 128.0
    for count in (251, 1, 300, 1, 147):
        check(world.step(backend, [(0, count)]), TOLERANCE if dtype is torch.float32 else 0.02)


@pytest.mark.parametrize("shape", [SMALL, MANY])
@pytest.mark.parametrize("count", [1, 7])
@dtypes
def test_scores_that_overflow_stay_visible(shape, count, dtype):
    """If all scores are infinite, no probability is a number."""
    world, backend = make(shape, dtype=dtype, num_blocks=50, num_layers=1)
    world.add(0, 20)
    (q,), (k,), _ = world.known[0]
    q[..., 0], k[..., 0] = 1e20, -1e20
    ((result, _),) = world.step(backend, [(0, count)])
    assert result.isnan().all()


@pytest.mark.parametrize("shape", [SMALL, MANY, WINDOWED, replace(SMALL, softcap=3.0)])
@pytest.mark.parametrize("part", [1, 2], ids=["key", "value"])
@dtypes
def test_nan_at_any_position_reaches_all_rows_that_see_it(shape, part, dtype):
    """Even where its probability is nothing."""
    for position in (0, 17, 255, 256, 390):
        world, backend = make(shape, dtype=dtype, num_blocks=50, num_layers=1)
        world.add(0, 500)
        world.known[0][1][0][position] *= 1e3
        world.known[0][part][0][position] = math.nan
        results = [world.step(backend, [(0, count)])[0][0] for count in (255, 1, 1, 143)]
        found = torch.cat(results).isnan()
        end = position + (shape.window or 400)
        sees = torch.tensor([position <= row < end for row in range(400)])
        assert torch.equal(found.all(-1).all(-1), sees)
        assert torch.equal(found.any(-1).any(-1), sees)
