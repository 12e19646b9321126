"""The token table as stored in its file: the same rows with less memory."""

import pytest
import torch

from engine.layers.embedding import OpenEmbedding, StoredEmbedding
from engine.quantization.gguf_blocks import dequantize
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix, StoredPart

NUM_TOKENS, SIZE = 50, 512
BLOCKS = {"Q8_0": (32, 34), "Q6_K": (256, 210), "Q4_K": (256, 144), "Q4_1": (32, 20)}


def stored(type_name: str) -> StoredMatrix:
    """Return random bytes below 60, so that the halves among them are finite numbers."""
    block_size, block_bytes = BLOCKS[type_name]
    data = torch.randint(0, 60, (NUM_TOKENS, SIZE // block_size * block_bytes), dtype=torch.uint8)
    return StoredMatrix.from_blocks(type_name, data, (NUM_TOKENS, SIZE))


@pytest.mark.parametrize("type_name", BLOCKS)
def test_a_stored_table_returns_writable_dequantised_rows(type_name):
    matrix = stored(type_name)
    opened = dequantize(type_name, matrix.parts[0].data)
    embedding, ids = StoredEmbedding(matrix.parts[0], torch.float32), torch.tensor([3, 0, 49, 3])
    rows = embedding(ids)
    assert rows.is_contiguous()
    assert torch.equal(rows, OpenEmbedding(opened, torch.float32)(ids))
    rows.zero_()
    assert torch.equal(embedding(ids), opened[ids])


def test_a_stored_table_keeps_a_copy_of_its_data():
    matrix = stored("Q8_0")
    embedding, ids = StoredEmbedding(matrix.parts[0], torch.float32), torch.tensor([7])
    before = embedding(ids)
    matrix.parts[0].data.zero_()
    assert torch.equal(embedding(ids), before)


def test_a_table_whose_columns_are_stored_by_activation_returns_them_in_order():
    (part,) = stored("Q8_0").parts
    columns, ids = torch.randperm(SIZE), torch.tensor([7, 2])
    table = StoredPart(part.type, part.data, columns)
    assert torch.equal(StoredEmbedding(table, torch.float32)(ids), table.open()[ids])


@pytest.mark.parametrize(("weights", "expected"), [("auto", True), ("bf16", False), ("float32", False)])
def test_a_table_stays_stored_where_no_weight_shares_it(weights, expected):
    assert WeightScheme(weights, torch.device("cpu"), batch_invariant=False).keeps_stored(stored("Q8_0")) is expected


def test_a_table_that_is_no_smaller_stored_is_opened():
    scheme = WeightScheme("auto", torch.device("cpu"), batch_invariant=False)
    assert not scheme.keeps_stored(StoredMatrix.from_float(torch.randn(4, 8).bfloat16()))
