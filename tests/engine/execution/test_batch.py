"""Plans become tensors: ids, positions and slots equal those of a slow loop."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.cache_groups import CacheGroups
from engine.execution.batch import BatchBuilder, dummy_sequence
from engine.sequence import Chunk, InputSpan, StepPlan
from tests.examples import examples

BLOCK_SIZE = 4


def sequence(number, prompt_ids, output_ids, block_ids):
    made = dummy_sequence(number, prompt_ids, block_ids)
    made.output_ids += output_ids
    return made


@st.composite
def plans(draw):
    chunks = []
    for number in range(draw(st.integers(1, 6))):
        num_prompt, num_output = draw(st.integers(1, 700)), draw(st.integers(0, 20))
        known = num_prompt + num_output
        blocks = draw(st.permutations(range(200))) if known < 200 else list(reversed(range(200)))
        start = draw(st.integers(0, known - 1))
        count = draw(st.sampled_from([1, known - start, draw(st.integers(1, known - start))]))
        seq = sequence(number, list(range(1000, 1000 + num_prompt)), list(range(num_output)), blocks)
        draft_ids = tuple(range(5000, 5000 + draw(st.integers(0, 5)))) if start + count == known and known < 190 else ()
        chunks.append(Chunk(seq, start, count, start + count == known, draft_ids))
    return StepPlan(tuple(sorted(chunks, key=lambda chunk: not (chunk.num_positions == 1 and chunk.samples))))


BUILDER = BatchBuilder(CacheGroups(BLOCK_SIZE), torch.device("cpu"))


@examples(60)
@given(plans())
def test_every_token_has_its_id_position_and_slot(plan):
    batch = BUILDER.build(plan)
    ids, positions, slots, samples = [], [], [], []
    for chunk in plan.chunks:
        seq = chunk.sequence
        last_known = chunk.start + chunk.num_tokens - 1
        for position in range(chunk.start, chunk.start + chunk.num_positions):
            ids.append([*seq.prompt_ids, *seq.output_ids, *chunk.draft_ids][position])
            positions.append(position)
            slots.append(seq.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE)
            if chunk.samples and position >= last_known:
                samples.append(len(ids) - 1)
    assert batch.token_ids.tolist() == ids
    assert batch.positions.tolist() == positions
    assert batch.layout.slots.tolist() == [slots]
    assert batch.layout.query_lens == [chunk.num_positions for chunk in plan.chunks]
    assert batch.layout.context_lens == [chunk.start + chunk.num_positions for chunk in plan.chunks]
    assert batch.layout.block_ids == [chunk.sequence.block_ids for chunk in plan.chunks]
    assert all(length == 1 for length in batch.layout.query_lens[: batch.layout.num_decodes])
    rows = list(range(len(ids))) if batch.sample_rows is None else batch.sample_rows.tolist()
    assert rows == samples


def test_positions_behind_an_image_go_on_from_its_longer_side():
    seq = dummy_sequence(0, list(range(40)), list(range(200)))
    places = torch.zeros(3, 6, dtype=torch.int64)
    seq.inputs = (
        InputSpan(4, 10, torch.zeros(6, 2), places, None, -3),
        InputSpan(20, 26, torch.zeros(6, 2), places + 1, None, -7),
    )
    seq.inputs_end, seq.shift = 26, -7
    expected = [
        *range(10),
        *(position - 3 for position in range(10, 26)),
        *(position - 7 for position in range(26, 40)),
    ]
    for start in range(40):
        for count in (1, 3, 40 - start):
            batch = BUILDER.build(StepPlan((Chunk(seq, start, min(count, 40 - start), False),)))
            assert batch.positions.tolist() == expected[start : start + count]
    (rows,) = BUILDER.build(StepPlan((Chunk(seq, 22, 10, False),))).vectors
    assert (rows.first, rows.places.tolist()) == (0, [[1] * 4] * 3)
