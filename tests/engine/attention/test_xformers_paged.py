"""The CUDA backend as far as a CPU can tell: masks against the dense rule, index tensors, and each product against the CPU backend.

The kernels themselves run in the tests marked `gpu`. Their CPU twins replace the kernel by torch on the mask that xformers itself
materialises, so that writing, masks, gathering and the folding of heads are those of the backend.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.attention.torch_cpu import TorchCpuAttention
from engine.attention.xformers_paged import (
    XformersAttention,
    block_table,
    context_slots,
    import_fmha,
    paged_rows_op,
    split_into_rows,
)
from tests.engine.attention.scenario import PagedWorld

GROUPED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
FULL = AttentionShape(num_heads=4, num_kv_heads=4, head_size=32, scale=0.2)
CPU = torch.device("cpu")
SCHEDULE = [
    [(0, 20), (1, 9)],
    [(0, 1), (1, 1), (2, 30)],
    [(1, 1), (0, 1), (2, 41), (3, 17)],
    [(3, 1), (0, 1), (1, 1), (2, 1)],
]


class MaterialisedAttention(XformersAttention):
    """The backend with its kernels replaced by torch over the materialised mask."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.fmha = self

    @property
    def attn_bias(self):
        return import_fmha().attn_bias

    def memory_efficient_attention_forward(self, q, k, v, *, attn_bias, scale, op):
        assert (op is not None) == isinstance(attn_bias, self.attn_bias.PagedBlockDiagonalPaddedKeysMask)
        num_queries, num_keys = q.shape[1], k.shape[1]
        if op is None:
            mask = attn_bias.materialize((num_queries, num_keys))
        else:
            mask = torch.full((num_queries, num_keys), float("-inf"))
            for row, (table, length) in enumerate(zip(attn_bias.block_tables, attn_bias.k_seqinfo.seqlen.tolist(), strict=True)):
                slots = (table[:, None] * attn_bias.page_size + torch.arange(attn_bias.page_size)).flatten()[:length]
                mask[row, slots.long()] = 0.0
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)


def backends(shape, device=CPU, dtype=torch.float32, kind=MaterialisedAttention, **options):
    sizes = {"num_layers": 2, "num_blocks": 96, "block_size": 16}
    return (
        PagedWorld(shape, **sizes),
        kind(shape, device=device, dtype=dtype, **sizes, **options),
        PagedWorld(shape, **sizes),
        TorchCpuAttention(shape, dtype=torch.float32, **sizes, **options),
    )


@pytest.mark.parametrize("shape", [GROUPED, FULL], ids=["grouped", "full"])
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_both_backends_agree_on_the_same_steps(shape, batch_invariant):
    world, cuda, twin_world, cpu = backends(shape, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
        twin_world.add(sequence, 120)
    for plan in SCHEDULE:
        for (ours, expected), (theirs, _) in zip(world.step(cuda, plan), twin_world.step(cpu, plan), strict=True):
            torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [GROUPED, FULL], ids=["grouped", "full"])
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_the_kernels_agree_with_the_oracle(shape, batch_invariant):
    """bfloat16 keys, values and outputs of standard normal inputs carry 8 bits."""
    device = torch.device("cuda")
    world, cuda, _, _ = backends(shape, device, torch.bfloat16, XformersAttention, batch_invariant=batch_invariant)
    for sequence in range(4):
        world.add(sequence, 120)
        world.known[sequence] = tuple(part.to(torch.bfloat16).float() for part in world.known[sequence])
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


def test_the_paged_mask_shows_each_row_its_own_context_only():
    contexts, blocks = [40, 48, 33], [[5, 1, 3], [0, 2, 4], [9, 8, 7]]
    table = block_table(contexts, blocks, 16)
    mask = import_fmha().attn_bias.PagedBlockDiagonalPaddedKeysMask.from_seqlens([1] * 3, contexts, table, 16, device=CPU)
    visible = mask.materialize((3, 3 * 48)) == 0
    for row, (context, ids) in enumerate(zip(contexts, blocks, strict=True)):
        assert sorted(visible[row].nonzero().flatten().tolist()) == sorted(context_slots([context], [ids], 16).tolist())


def test_the_chunk_mask_is_causal_and_aligned_at_the_end_of_each_context():
    query_lens, context_lens = [3, 2, 4], [7, 2, 5]
    mask = import_fmha().attn_bias.BlockDiagonalCausalFromBottomRightMask.from_seqlens(query_lens, context_lens, device=CPU)
    visible = mask.materialize((9, 14)) == 0
    expected = torch.block_diag(*(torch.ones(q, c).tril(c - q) for q, c in zip(query_lens, context_lens, strict=True))).bool()
    assert torch.equal(visible, expected)


def test_the_table_is_padded_with_the_rows_own_last_block():
    assert block_table([33, 5], [[4, 2, 6, 9], [7, 1]], 16).tolist() == [[4, 2, 6], [7, 7, 7]]


def test_the_slots_of_contexts_follow_each_other():
    assert context_slots([5, 2], [[3, 1], [0, 2]], 4).tolist() == [12, 13, 14, 15, 4, 0, 1]
    assert context_slots([], [], 4).tolist() == []


def test_rows_of_a_step_see_one_position_more_each():
    assert split_into_rows([1, 3], [9, 20], [[1], [2, 3]]) == ([1] * 4, [9, 18, 19, 20], [[1], [2, 3], [2, 3], [2, 3]])


@pytest.mark.parametrize(("block_size", "tile"), [(16, 16), (32, 16), (64, 64), (128, 64)])
def test_the_tile_of_the_rows_operator_divides_the_block(block_size, tile):
    op = paged_rows_op(block_size, single_split=True)
    assert block_size % op.BLOCK_N == 0
    assert tile == op.BLOCK_N
    assert op.SPLIT_K
    assert paged_rows_op(block_size, single_split=False).SPLIT_K is None


def test_the_rows_operator_takes_our_pages_where_the_shipped_one_refuses_them():
    fmha = import_fmha()
    mask = fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask.from_seqlens(
        [1, 1], [20, 5], block_table([20, 5], [[3, 1], [2, 7]], 16), 16, device=CPU
    )
    q = torch.zeros(1, 2, 2, 3, 64, dtype=torch.bfloat16)
    k = torch.zeros(1, 128, 2, 1, 64, dtype=torch.bfloat16).expand(-1, -1, -1, 3, -1)
    inputs = fmha.Inputs(q, k, k, attn_bias=mask)

    def complaints(op):
        return [reason for reason in op.not_supported_reasons(inputs) if "device" not in reason and "A100" not in reason]

    assert complaints(paged_rows_op(16, single_split=False)) == []
    assert any("page size" in reason for reason in complaints(fmha.triton_splitk.FwOp))


@pytest.mark.parametrize(
    ("shape", "block_size", "message"), [(GROUPED, 8, "block_size"), (AttentionShape(2, 2, 80, 1.0), 16, "heads on CUDA")]
)
def test_sizes_that_the_kernels_cannot_take_are_refused_by_name(shape, block_size, message):
    with pytest.raises(ModelLoadError, match=message):
        XformersAttention(shape, device=CPU, num_layers=1, num_blocks=4, block_size=block_size, dtype=torch.bfloat16)
