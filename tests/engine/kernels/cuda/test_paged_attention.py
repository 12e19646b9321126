"""Single rows over the paged cache against dense attention: all context lengths, any number of parts, padded rows."""

import pytest
import torch

from tests.engine.attention.scenario import dense_attention

BLOCK_SIZE = 16
NUM_BLOCKS = 80
CONTEXTS = [1, 16, 600, 257] if torch.cuda.is_available() else [1, 16, 257, 129]
"""Within a tile, a whole block, and beyond two parts and one; the interpreter is slow."""


class Cache:
    """A cache of random keys and values with rows in scattered blocks, and the expected result of each row."""

    def __init__(self, contexts, num_heads, kv_heads, size, dtype, device, stored=None):
        generator = torch.Generator().manual_seed(3)
        shape = (NUM_BLOCKS * BLOCK_SIZE, kv_heads, size)
        self.keys, self.values = (torch.randn(shape, generator=generator).to(stored or dtype) for _ in range(2))
        self.queries = torch.randn(len(contexts), num_heads, size, generator=generator).to(dtype)
        order = torch.randperm(NUM_BLOCKS, generator=generator)
        counts = [-(-context // BLOCK_SIZE) for context in contexts]
        self.table = torch.zeros(len(contexts), max(counts), dtype=torch.int32)
        self.expected = torch.empty(len(contexts), num_heads, size)
        for row, (count, context) in enumerate(zip(counts, contexts, strict=True)):
            blocks, order = order[:count], order[count:]
            self.table[row, :count] = blocks
            slots = (blocks[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()[:context]
            seen = (part.float()[slots] for part in (self.keys, self.values))
            self.expected[row] = dense_attention(self.queries[row][None].float(), *seen, size**-0.5)[0]
        self.contexts = torch.tensor(contexts)
        self.device = device

    def attend(self, num_parts, rows=slice(None), is_transposed=False):
        from engine.kernels.cuda.paged_attention import attend_rows

        table = self.table[rows].to(self.device)
        table = table.t().contiguous().t() if is_transposed else table
        tensors = (part.to(self.device) for part in (self.queries[rows], self.keys, self.values))
        contexts = self.contexts[rows].to(self.device)
        size = self.queries.shape[-1]
        return attend_rows(
            *tensors, table, contexts, block_size=BLOCK_SIZE, scale=size**-0.5, num_parts=num_parts
        ).cpu()


@pytest.mark.parametrize(("num_heads", "kv_heads", "size"), [(6, 2, 16), (2, 2, 40), (2, 1, 8), (2, 1, 136)])
@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_rows_attend_to_their_own_contexts(device, num_heads, kv_heads, size, num_parts):
    cache = Cache(CONTEXTS, num_heads, kv_heads, size, torch.float32, device)
    torch.testing.assert_close(cache.attend(num_parts), cache.expected, atol=1e-5, rtol=0)


def test_half_precision_stays_near_the_float32_result(device):
    half = torch.bfloat16 if torch.cuda.is_available() else torch.float16  # the interpreter has no products of bfloat16
    cache = Cache([300, 20], 4, 1, 32, half, device)
    torch.testing.assert_close(cache.attend(2).float(), cache.expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(("num_heads", "kv_heads", "size"), [(6, 2, 16), (2, 1, 136)])
def test_an_eight_bit_cache_is_dequantised_when_it_is_read(device, num_heads, kv_heads, size):
    cache = Cache(CONTEXTS, num_heads, kv_heads, size, torch.float32, device, stored=torch.float8_e4m3fn)
    torch.testing.assert_close(cache.attend(2), cache.expected, atol=1e-5, rtol=0)


def test_a_row_alone_is_the_row_in_a_crowd_bit_for_bit(device):
    cache = Cache([90, max(CONTEXTS), 7], 4, 2, 16, torch.float32, device)
    together = cache.attend(4)
    for row in range(3):
        assert torch.equal(cache.attend(4, rows=slice(row, row + 1))[0], together[row])


def test_a_block_table_may_be_transposed(device):
    cache = Cache([90, max(CONTEXTS), 7], 4, 2, 16, torch.float32, device)
    assert torch.equal(cache.attend(2), cache.attend(2, is_transposed=True))


@pytest.mark.parametrize(
    ("num_rows", "max_context", "parts"),
    [(1, 1 << 17, 32), (1, 300, 4), (1, 100, 1), (8, 1 << 17, 8), (64, 1 << 17, 1), (512, 1 << 17, 1)],
)
def test_few_rows_are_cut_into_more_parts(device, num_rows, max_context, parts):
    from engine.kernels.cuda.paged_attention import parts_for

    assert parts_for(num_rows, kv_heads=8, num_processors=132, max_context=max_context) == parts
