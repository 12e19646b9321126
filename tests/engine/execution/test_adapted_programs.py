"""Recorded steps whose rows have adapters equal those that are computed layer by layer, to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
import torch

from engine.execution.step_programs import StepPrograms
from engine.layers.adapters import AdapterRun, AdapterWeights, LowRank, make_adapters
from engine.loading.loader import load_model
from tests.engine.execution.test_step_programs import (
    INNER,
    LARGE_STEPS,
    LAYERS,
    MAX_TOKENS,
    MOST,
    PANELS,
    SIZE,
    drafted_batch,
    make_attention,
    moved,
)
from tests.engine.random_model import random_model
from tests.engine.threads import WAYS, threads_of

pytestmark = PANELS
SMALL_STEPS = [(1,), (1, 1, 1), (8,), (1, 3, 4), (1,), (2, 6), (1, 1, 1)]


@pytest.fixture(params=WAYS, autouse=True)
def threads(request):
    with threads_of(request.param):
        yield


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": SIZE, "intermediate_size": INNER, "num_hidden_layers": LAYERS}
    random_model(seed=5, spread=0.2, **sizes).save_pretrained(folder)
    return load_model(folder)


@pytest.fixture(scope="module")
def adapters(loaded):
    """Two adapters, of which the second leaves the feed-forward as it is."""
    made = make_adapters([target.size for target in loaded.adapter_targets], torch.device("cpu"), torch.bfloat16)
    torch.manual_seed(1)
    for index, rank in enumerate((5, 16), 1):
        by_place = {
            place: tuple(
                LowRank(torch.randn(rank, size.num_inputs), torch.randn(num_outputs, rank) * 0.1)
                for num_outputs in size.num_outputs
            )
            for place, size in enumerate(made.projections)
            if index == 1 or place % 4 < 2
        }
        made.bind(index, made.pack(AdapterWeights(by_place, rank, ())))
    return made


def adapted_batch(lengths):
    """Return a batch whose sequences have the first adapter, the second and none by turns."""
    runs = zip(accumulate(lengths, initial=0), lengths, strict=False)
    made = [AdapterRun((number + 1) % 3, *run) for number, run in enumerate(runs)]
    return replace(drafted_batch(0, lengths), adapters=tuple(run for run in made if run.adapter))


def ordinary(loaded, adapters, attention, batch):
    step = adapters.begin_step(batch.adapters, len(batch.token_ids)) if batch.adapters else None
    return loaded.decoder.forward(batch.token_ids, batch.positions, attention.begin_step(batch.layout), step)


@torch.inference_mode()
def test_recorded_steps_with_adapters_equal_ordinary_ones(loaded, adapters):
    attention, twin = make_attention(takes_rows=True), make_attention(takes_rows=True)
    plain = StepPrograms(loaded.decoder, attention, MAX_TOKENS)
    plain.prepare_many(MOST)
    twin.keys.copy_(attention.keys)
    twin.values.copy_(attention.values)
    programs = plain.with_adapters(adapters)
    for lengths in SMALL_STEPS + LARGE_STEPS:
        batch = adapted_batch(lengths)
        bare = ordinary(loaded, adapters, twin, replace(batch, adapters=()))
        assert torch.equal(plain.forward(replace(batch, adapters=())), bare), lengths
        changed = ordinary(loaded, adapters, twin, batch)
        assert torch.equal(programs.forward(batch), changed), lengths
        assert not torch.equal(changed, bare)
    assert all(programs._programs.values())
    assert torch.equal(attention.keys, twin.keys)
    assert torch.equal(attention.values, twin.values)


@torch.inference_mode()
def test_a_step_with_adapters_that_is_left_between_layers_equals_a_whole_one(loaded, adapters):
    """Steps with other adapters, and without, are computed in between, after each of its layers."""
    attention, twin = make_attention(takes_rows=True), make_attention(takes_rows=True)
    plain, whole = (StepPrograms(loaded.decoder, one, MAX_TOKENS) for one in (attention, twin))
    for one in (plain, whole):
        one.prepare_many(MOST)
    twin.keys.copy_(attention.keys)
    twin.values.copy_(attention.values)
    programs, whole = plain.with_adapters(adapters), whole.with_adapters(adapters)
    batch, others = adapted_batch((47, 12)), [moved(adapted_batch(lengths), 20) for lengths in [(40,), (2, 1)]]
    step, found = programs.begin(batch, needs_hidden=True), None
    while found is None:
        for other in others:
            programs.forward(other)
            plain.forward(replace(other, adapters=()))
        found = step.advance()
    assert torch.equal(found, whole.forward(batch))
