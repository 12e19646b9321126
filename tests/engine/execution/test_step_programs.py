"""Recorded steps are bit-equal to normal ones if every operator is ours, and discarded otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.attention.backend import AttentionShape, StepLayout, kv_sizes
from engine.attention.cache_groups import group_layers
from engine.attention.torch_cpu import TorchCpuAttention
from engine.execution.batch import StepBatch
from engine.execution.step_programs import FEW_ROWS, LEAST_SHARED_ROWS, StepProgram, StepPrograms
from engine.layers.attention import Attention
from engine.layers.embedding import InputRows, OpenEmbedding
from engine.layers.feed_forward import FeedForward
from engine.layers.linear import Linear
from engine.layers.norm import HeadsNorm, Norm
from engine.layers.rotary import RotaryEmbedding, Rotation
from engine.models.config import LayerConfig, ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.quantization.gguf_blocks import FourBitGroups
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.scheme import RowForms
from engine.quantization.stored import StoredMatrix
from engine.quantization.table_blocks import TableGroups
from engine.quantization.torch_forms import DenseWeight
from tests.engine.threads import WAYS, threads_of

SIZE, HEADS, KV_HEADS, HEAD_SIZE, INNER, VOCAB, LAYERS = 64, 4, 2, 16, 96, 64, 3
SHAPE = AttentionShape(HEADS, KV_HEADS, HEAD_SIZE, HEAD_SIZE**-0.5)
BLOCK_SIZE, NUM_BLOCKS, WIDTH = 16, 40, 6
MAX_TOKENS = WIDTH * BLOCK_SIZE

PANELS = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")


def linear(num_outputs, num_inputs, *, is_ours=True, has_bias=False):
    """Make a layer; our own have four bits for the first 32 outputs, four from a table for the next, then eight."""
    weight = torch.randn(num_outputs, num_inputs) * num_inputs**-0.5
    form = mixed(weight) if is_ours else DenseWeight(weight)
    return Linear(RowForms((form, form), num_outputs), torch.randn(num_outputs) if has_bias else None)


def mixed(weight):
    first = weight[:32]
    step = torch.full((32, weight.shape[1] // 32), float(first.abs().max()) / 8)
    levels = (first / step[0, 0] + 8).clamp(0, 15).to(torch.uint8)
    narrow = PanelWeight.four_bit(FourBitGroups(levels, step, -8 * step))
    table = PanelWeight.tabled(TableGroups(levels, step, torch.arange(-8, 8, dtype=torch.int8)))
    wide = PanelWeight.of_matrix(StoredMatrix.from_float(weight[64:])).parts if len(weight) > 64 else []
    return PanelWeight(len(weight), *narrow.parts, *table.parts, *wide)


def norm():
    return Norm(torch.rand(SIZE), None, 1e-5)


def make_decoder(*, is_ours=True, has_everything=False):
    """`has_everything`: layers differ in rotation, sinks, activation, norms and the norms of their heads."""
    torch.manual_seed(0)
    layers = []
    for layer in range(LAYERS):
        qkv = linear((HEADS + 2 * KV_HEADS) * HEAD_SIZE, SIZE, is_ours=is_ours, has_bias=True)
        output = linear(SIZE, HEADS * HEAD_SIZE, is_ours=is_ours)
        heads_norm = HeadsNorm(torch.rand(HEAD_SIZE), HEADS, torch.rand(HEAD_SIZE), KV_HEADS, 1e-5)
        sinks = torch.rand(HEADS) if has_everything and layer else None
        attention = Attention(
            layer,
            SHAPE,
            qkv,
            output,
            layer % 2 * has_everything,
            heads_norm if has_everything else None,
            sinks=sinks,
        )
        is_gated = layer < 2 or not has_everything
        mlp = FeedForward(
            linear(2 * INNER if is_gated else INNER, SIZE, is_ours=is_ours),
            linear(SIZE, INNER, is_ours=is_ours),
            is_gelu=has_everything,
            is_gated=is_gated,
        )
        norms = [norm() for _ in range(4)]
        if has_everything and layer == 1:
            norms[0], norms[2] = Norm(None, None, 1e-5, 0.5), Norm(torch.rand(SIZE), torch.rand(SIZE), 1e-5)
        if not has_everything:
            norms[1] = norms[3] = None
        layers.append(DecoderLayer(norms[0], attention, norms[1], norms[2], mlp, norms[3]))
    rotations = Rotation(10_000.0, HEAD_SIZE, HEAD_SIZE), Rotation(500.0, HEAD_SIZE // 2, HEAD_SIZE)
    config = ModelConfig(
        architecture="test",
        vocab_size=VOCAB,
        hidden_size=SIZE,
        layers=(LayerConfig(SHAPE, INNER),) * LAYERS,
        rotations=rotations,
        norm_eps=1e-5,
        max_position=MAX_TOKENS,
        tied_output=False,
        residual_scale=0.5 if has_everything else 1.0,
    )
    return Decoder(
        OpenEmbedding(torch.randn(VOCAB, SIZE), torch.float32),
        RotaryEmbedding.build(rotations, torch.device("cpu")),
        layers,
        Norm(torch.ones(SIZE), None, 1e-5),
        linear(VOCAB, SIZE),
        config,
    )


def make_attention(*, takes_rows=False):
    return TorchCpuAttention(
        [SHAPE] * LAYERS,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        batch_invariant=takes_rows,
    )


def decode_batch(step, num_rows):
    """Return a batch of one more token per sequence, at different positions and in separate blocks."""
    starts = [step + 5 * row % 20 for row in range(num_rows)]
    block_ids = [
        [row, num_rows + row, 2 * num_rows + row][: start // BLOCK_SIZE + 1] for row, start in enumerate(starts)
    ]
    slots = [blocks[-1] * BLOCK_SIZE + start % BLOCK_SIZE for start, blocks in zip(starts, block_ids, strict=True)]
    layout = StepLayout([1] * num_rows, [start + 1 for start in starts], torch.tensor([slots]), block_ids, num_rows)
    return StepBatch(
        torch.tensor([(7 * step + row) % VOCAB for row in range(num_rows)]), torch.tensor(starts), layout, None
    )


def ordinary(decoder, attention, batch):
    attended = attention.begin_step(batch.layout)
    return decoder.forward(batch.token_ids, batch.positions, attended, vectors=batch.vectors)


@pytest.fixture(params=WAYS, autouse=True)
def threads(request):
    with threads_of(request.param):
        yield


@PANELS
@pytest.mark.parametrize("num_rows", [1, 3, 12])
@pytest.mark.parametrize("has_everything", [False, True])
@torch.inference_mode()
def test_recorded_steps_equal_ordinary_ones_to_the_bit(num_rows, has_everything):
    decoder, attention, twin = make_decoder(has_everything=has_everything), make_attention(), make_attention()
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    for step in range(20):
        batch = decode_batch(step, num_rows)
        assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch))
    assert programs._programs[num_rows] is not None
    assert torch.equal(attention.keys, twin.keys)
    assert torch.equal(attention.values, twin.values)


@PANELS
@torch.inference_mode()
def test_programs_of_alternating_row_counts_stay_exact():
    decoder, attention, twin = make_decoder(), make_attention(), make_attention()
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    for step in range(12):
        batch = decode_batch(step, 1 + step % 3)
        assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch))


@torch.inference_mode()
def test_an_incomplete_recording_is_discarded_without_effect():
    decoder, attention, twin = make_decoder(is_ours=False), make_attention(), make_attention()
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    for step in range(6):
        batch = decode_batch(step, 2)
        found = programs.forward(batch)
        hidden = ordinary(decoder, attention, batch) if found is None else found
        assert torch.equal(hidden, ordinary(decoder, twin, batch))
        assert (found is None) == (step >= 1)
    assert torch.equal(attention.keys, twin.keys)


@torch.inference_mode()
def test_what_torch_computes_of_the_positions_alone_is_missed_too():
    decoder, attention = make_decoder(), make_attention()
    layers = decoder.run_layers
    decoder.run_layers = lambda inputs, *rest, **named: layers(
        inputs._replace(rotations=inputs.rotations * 1.0), *rest, **named
    )
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    programs.forward(decode_batch(0, 1))
    assert programs._programs == {1: None}


def test_large_steps_run_normally_until_their_recording_exists():
    programs = StepPrograms(make_decoder(), make_attention(), MAX_TOKENS)
    assert programs.forward(decode_batch(0, FEW_ROWS + 1)) is None


def drafted_batch(step, lengths):
    """Return a batch of sequences with these numbers of new tokens; every position is written before it is read."""
    starts = [step + 5 * row for row in range(len(lengths))]
    block_ids = [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(len(lengths))]
    places = [
        (row, start + i) for row, (start, length) in enumerate(zip(starts, lengths, strict=True)) for i in range(length)
    ]
    slots = [block_ids[row][place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for row, place in places]
    context_lens = [start + length for start, length in zip(starts, lengths, strict=True)]
    layout = StepLayout(
        list(lengths), context_lens, torch.tensor([slots]), block_ids, sum(length == 1 for length in lengths)
    )
    return StepBatch(
        torch.tensor([(7 * place + 3 * row) % VOCAB for row, place in places]),
        torch.tensor([place for _, place in places]),
        layout,
        None,
    )


@PANELS
@torch.inference_mode()
def test_steps_with_equal_row_counts_share_a_recording():
    decoder, attention, twin = make_decoder(), make_attention(), make_attention()
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    for step, lengths in enumerate([(8,), (1, 7), (3, 5), (1, 1, 1, 5), (1, 3, 4), (8,), (2, 6)]):
        batch = drafted_batch(step, lengths)
        assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch)), lengths
    assert programs._programs[8] is not None


MOST = 80
"""Rows of the record of many."""
LARGE_STEPS = [(33,), (35,), (39,), (40, 40), (1, 1, 31), (30, 20, 1, 9), (1, 2, 1, 1, 28), (25, 25, 25, 5), (48,)]


@PANELS
@torch.inference_mode()
def test_large_steps_of_any_size_share_one_recording():
    decoder, attention, twin = make_decoder(), make_attention(takes_rows=True), make_attention(takes_rows=True)
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    programs.prepare_many(MOST)
    twin.keys.copy_(attention.keys)
    twin.values.copy_(attention.values)
    for lengths in LARGE_STEPS:
        batch = drafted_batch(0, lengths)
        assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch)), lengths
    assert torch.equal(attention.keys, twin.keys)
    assert torch.equal(attention.values, twin.values)


@PANELS
@pytest.mark.parametrize("lengths", [(40,), (3, 4)])
@torch.inference_mode()
def test_a_step_whose_rows_nobody_reads_ends_with_the_keys_and_values_of_the_last_layer(lengths):
    decoder, attention, twin = make_decoder(), make_attention(takes_rows=True), make_attention(takes_rows=True)
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    programs.prepare_many(MOST)
    programs.prepare(sum(lengths))
    attention.keys.fill_(0.0)
    attention.values.fill_(0.0)
    batch = drafted_batch(0, lengths)
    assert len(programs.forward(batch, needs_hidden=False)) == 0
    ordinary(decoder, twin, batch)
    written = batch.layout.slots.unique() // BLOCK_SIZE
    assert torch.equal(attention.keys[:, written], twin.keys[:, written])
    assert torch.equal(attention.values[:, written], twin.values[:, written])


@PANELS
@pytest.mark.parametrize("has_everything", [False, True])
@pytest.mark.parametrize("needs_hidden", [False, True])
@torch.inference_mode()
def test_a_step_left_between_layers_equals_a_whole_one_to_the_bit(has_everything, needs_hidden):
    """Steps of many and of few rows are computed in between, after each of its layers."""
    decoder = make_decoder(has_everything=has_everything)
    attention, twin = make_attention(takes_rows=True), make_attention(takes_rows=True)
    programs, whole = StepPrograms(decoder, attention, MAX_TOKENS), StepPrograms(decoder, twin, MAX_TOKENS)
    for one in (programs, whole):
        one.prepare_many(MOST)
        one.prepare(3)
    twin.keys.copy_(attention.keys)
    twin.values.copy_(attention.values)
    batch, others = drafted_batch(0, (47, 12)), [moved(drafted_batch(0, lengths), 20) for lengths in [(40,), (3,)]]
    step, found = programs.begin(batch, needs_hidden=needs_hidden), None
    while found is None:
        for other in others:
            programs.forward(other)
        found = step.advance()
    assert torch.equal(found, whole.forward(batch, needs_hidden=needs_hidden))
    for other in others:
        assert torch.equal(programs.forward(other), whole.forward(other))
    assert torch.equal(attention.keys, twin.keys)
    assert torch.equal(attention.values, twin.values)


def media_rows():
    """Return the rows of an image of which something is added behind the first two layers."""
    return (InputRows(2, torch.randn(5, SIZE), None, torch.randn(2, 5, SIZE)),)


@PANELS
@pytest.mark.parametrize("lengths", [(40,), (9,)])
@torch.inference_mode()
def test_rows_of_images_get_what_is_added_behind_the_first_layers(lengths):
    decoder, attention, twin = make_decoder(), make_attention(takes_rows=True), make_attention(takes_rows=True)
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    programs.prepare_many(MOST)
    programs.prepare(9)
    plain = drafted_batch(0, lengths)
    batch = replace(plain, vectors=media_rows())
    shallow = replace(plain, vectors=(batch.vectors[0]._replace(deep=None),))
    expected = ordinary(decoder, twin, batch)
    assert not torch.equal(expected, ordinary(decoder, twin, shallow))
    ordinary(decoder, twin, batch)
    assert torch.equal(programs.forward(batch), expected)
    if len(expected) > FEW_ROWS:
        step, found = programs.begin(batch, needs_hidden=True), None
        while found is None:
            programs.forward(moved(drafted_batch(0, (3,)), 20))
            found = step.advance()
        assert torch.equal(found, expected)
    programs.forward(batch, needs_hidden=False)
    written = batch.layout.slots.unique() // BLOCK_SIZE
    assert torch.equal(attention.keys[:, written], twin.keys[:, written])


def moved(batch, num_blocks):
    """Return the batch of other sequences, in blocks that are so many further on."""
    layout = batch.layout
    tables = [[block_id + num_blocks for block_id in table] for table in layout.block_ids]
    return replace(batch, layout=replace(layout, slots=layout.slots + num_blocks * BLOCK_SIZE, block_ids=tables))


@PANELS
@torch.inference_mode()
def test_layers_in_several_cache_groups_are_recorded_at_load():
    """Dummy steps of several rows had their slots group by group in turn, so that programs seemed wrong and were
    dropped: models with windows in some layers ran all larger steps layer by layer.
    """
    shapes = [SHAPE, *[replace(SHAPE, window=24)] * 2]
    sizes = kv_sizes(shapes, BLOCK_SIZE, torch.device("cpu"))
    groups = group_layers([shape.window for shape in shapes], sizes, block_size=BLOCK_SIZE)
    assert groups.count > 1
    attention = TorchCpuAttention(
        shapes, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=torch.float32, groups=groups
    )
    programs = StepPrograms(make_decoder(), attention, MAX_TOKENS)
    assert programs.prepare(2)
    programs.prepare_many(MOST)
    assert programs.summary() == f"recorded up to {MOST} tokens"


@torch.inference_mode()
def test_the_summary_names_steps_whose_program_was_dropped():
    programs = StepPrograms(make_decoder(is_ours=False), make_attention(), MAX_TOKENS)
    programs.prepare(3)
    assert programs.summary() == "layer by layer"
    programs._programs[1] = StepProgram(make_decoder(), make_attention().fixed_rows(1, WIDTH), 1)
    assert programs.summary() == f"recorded up to {FEW_ROWS} tokens, but not of 3"


@PANELS
@torch.inference_mode()
def test_steps_with_more_rows_than_the_recording_run_normally():
    programs = StepPrograms(make_decoder(), make_attention(takes_rows=True), MAX_TOKENS)
    programs.prepare_many(MOST)
    assert programs.forward(drafted_batch(0, (40, 40))) is not None
    assert programs.forward(drafted_batch(0, (40, 40, 1))) is None


@PANELS
@pytest.mark.parametrize(("is_ours", "takes_rows"), [(False, True), (True, False)])
@torch.inference_mode()
def test_large_steps_with_torch_operators_are_not_recorded(is_ours, takes_rows):
    programs = StepPrograms(make_decoder(is_ours=is_ours), make_attention(takes_rows=takes_rows), MAX_TOKENS)
    programs.prepare_many(MOST)
    assert programs.forward(drafted_batch(0, (40,))) is None


@PANELS
@torch.inference_mode()
def test_a_drafted_token_gets_bit_equal_results_to_a_single_one():
    """If products do not depend on the number of rows, drafts change no bit of an answer."""
    decoder, attention, twin = make_decoder(), make_attention(), make_attention()
    together, alone = StepPrograms(decoder, attention, MAX_TOKENS), StepPrograms(decoder, twin, MAX_TOKENS)
    for step in range(0, 30, 6):
        batch = drafted_batch(step, (6,))
        singles = torch.cat([alone.forward(drafted_batch(place, (1,))) for place in range(step, step + 6)])
        assert torch.equal(together.forward(batch), singles)
    assert torch.equal(attention.keys, twin.keys)


@PANELS
@torch.inference_mode()
def test_a_step_with_nan_keeps_its_recording():
    decoder, attention = make_decoder(), make_attention()
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    for step in range(3):
        programs.forward(decode_batch(step, 2))
        attention.keys.fill_(float("nan"))
    assert programs._programs[2] is not None


@PANELS
@pytest.mark.parametrize("max_tokens", [MAX_TOKENS, 5])
@torch.inference_mode()
def test_prepared_programs_serve_the_first_step(monkeypatch, max_tokens):
    monkeypatch.setattr("engine.execution.step_programs.LOADING_S", float("inf"))  # on a machine of any load
    decoder, attention, twin = make_decoder(), make_attention(), make_attention()
    programs = StepPrograms(decoder, attention, max_tokens)
    programs.prepare_few(12)
    assert set(programs._programs) == set(range(1, min(12, max_tokens - 1) + 1))
    batch = decode_batch(0, 3) if max_tokens == MAX_TOKENS else drafted_batch(0, (3,))
    assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch))


@PANELS
@torch.inference_mode()
def test_a_program_is_prepared_once(monkeypatch):
    programs = StepPrograms(make_decoder(), make_attention(), MAX_TOKENS)
    assert programs.prepare(2)
    monkeypatch.setattr(programs, "_make", None)
    assert programs.prepare(2)


@PANELS
@pytest.mark.parametrize("is_slow", [True, False])
@torch.inference_mode()
def test_the_program_of_many_rows_serves_fewer_of_a_slow_model(monkeypatch, is_slow):
    """The first step of 25 rows behind 15,000 positions was computed twice, to verify a program of 25 rows."""
    monkeypatch.setattr("engine.execution.step_programs.LONG_STEP_S", 0.0 if is_slow else float("inf"))
    decoder, attention, twin = make_decoder(), make_attention(takes_rows=True), make_attention(takes_rows=True)
    programs = StepPrograms(decoder, attention, MAX_TOKENS)
    programs.prepare_many(MOST)
    twin.keys.copy_(attention.keys)
    twin.values.copy_(attention.values)
    counts = {LEAST_SHARED_ROWS, LEAST_SHARED_ROWS - 1, LEAST_SHARED_ROWS + 3}
    for num_rows in counts:
        batch = drafted_batch(0, (num_rows,))
        assert torch.equal(programs.forward(batch), ordinary(decoder, twin, batch))
    assert set(programs._programs) == ({LEAST_SHARED_ROWS - 1} if is_slow else counts)


def test_no_program_is_prepared_beyond_the_largest_row_count():
    assert not StepPrograms(make_decoder(), make_attention(), MAX_TOKENS).prepare(FEW_ROWS + 1)


@torch.inference_mode()
def test_preparation_stops_after_a_discarded_program():
    programs = StepPrograms(make_decoder(is_ours=False), make_attention(), MAX_TOKENS)
    programs.prepare_few(12)
    assert programs._programs == {1: None}
