"""Chunk attention on CUDA: each implementation against plain products, the choice among them, and the pinned packages.

On CPU tensors a stand-in computes torch's flash kernel plainly, behind the real checks of torch.
"""

from __future__ import annotations

import json
import logging
import re
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.attention import chunk_attention
from engine.attention.backend import AttentionShape
from engine.attention.chunk_attention import choose_chunk_way, problem_of, with_flash, with_sdpa, with_xformers
from tests.engine.attention.scenario import dense_attention

GROUPED = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
CPU = torch.device("cpu")
QUERY_LENS, CONTEXT_LENS = [3, 2, 4], [7, 2, 5]

TORCH_CUDA = {"2.13.0": 13}
"""CUDA major version of each torch wheel for Linux.

Source: the wheel's metadata; 2.13.0 requires cuda-toolkit 13.0.3 and Triton 3.7.1 (`pip install --dry-run --no-deps
--report - torch==2.13.0` shows that without a download).
"""


@pytest.fixture
def flash_kernel():
    """Replace torch's variable-length flash kernel by a CPU one in half precision; yield the list of its calls."""
    calls = []

    def compute(q, k, v, ends_q, ends_k, max_q, max_k, dropout, is_causal, return_debug_mask, *, scale=None, **options):
        if q.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        assert ends_q.dtype == ends_k.dtype == torch.int32
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        assert is_causal
        assert dropout == 0.0
        assert (max_q, max_k) == (ends_q.diff().max(), ends_k.diff().max())
        calls.append(options)
        parts = [
            dense_attention(q[a:b].float(), k[c:d].float(), v[c:d].float(), scale)
            for (a, b), (c, d) in zip(ends_q.unfold(0, 2, 1).tolist(), ends_k.unfold(0, 2, 1).tolist(), strict=True)
        ]
        nothing = torch.empty(0)
        return torch.cat(parts).to(q.dtype), nothing, nothing, nothing, nothing

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", compute, "CPU")
    yield calls
    del library


def chunks(dtype):
    """Return queries, keys and values as parts of one buffer, as a layer gives them, and the expected result."""
    generator = torch.Generator().manual_seed(3)
    heads = torch.randn(sum(CONTEXT_LENS), 10, 16, generator=generator).to(dtype)
    q, k, v = heads[: sum(QUERY_LENS), :6], heads[:, 6:8], heads[:, 8:]
    parts = zip(q.split(QUERY_LENS), k.split(CONTEXT_LENS), v.split(CONTEXT_LENS), strict=True)
    return (q, k, v), torch.cat([dense_attention(*(part.float() for part in chunk), GROUPED.scale) for chunk in parts])


@torch.inference_mode()
def test_sdpa_takes_chunks_with_and_without_a_past():
    parts, expected = chunks(torch.float32)
    torch.testing.assert_close(with_sdpa(QUERY_LENS, CONTEXT_LENS, GROUPED, CPU)(*parts), expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_torch_flash_attention_gets_lengths_heads_and_a_causal_mask(flash_kernel):
    parts, expected = chunks(torch.bfloat16)
    found = with_flash(QUERY_LENS, CONTEXT_LENS, GROUPED, CPU)(*parts)
    torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0.01)
    assert len(flash_kernel) == 1


def test_the_mask_of_xformers_is_causal_and_aligned_at_the_end_of_each_context():
    from xformers.ops import fmha

    mask = fmha.attn_bias.BlockDiagonalCausalFromBottomRightMask.from_seqlens(QUERY_LENS, CONTEXT_LENS, device=CPU)
    visible = mask.materialize((9, 14)) == 0
    expected = torch.block_diag(
        *(torch.ones(q, c).tril(c - q) for q, c in zip(QUERY_LENS, CONTEXT_LENS, strict=True))
    ).bool()
    assert torch.equal(visible, expected)


def test_xformers_gets_heads_that_share_a_key_without_a_copy(monkeypatch):
    from xformers.ops import fmha

    def compute(q, k, v, *, attn_bias, scale):
        assert k.stride(3) == v.stride(3) == 0
        mask = attn_bias.materialize((q.shape[1], k.shape[1])).to(q.dtype)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)
        return out.unflatten(2, (2, 3))

    monkeypatch.setattr(fmha, "memory_efficient_attention_forward", compute)
    parts, expected = chunks(torch.float32)
    torch.testing.assert_close(
        with_xformers(QUERY_LENS, CONTEXT_LENS, GROUPED, CPU)(*parts), expected, atol=1e-5, rtol=0
    )


def test_torch_still_exports_the_flash_attention_that_xformers_calls(monkeypatch):
    """On CUDA xformers checks these signatures at its import and raises if they differ."""
    from xformers.ops.fmha.torch_attention_compat import ensure_pt_flash_ok

    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    ensure_pt_flash_ok()


def test_a_model_loads_with_an_xformers_build_that_refuses_every_operator(flash_kernel, caplog):
    """Built for another CUDA than torch, xformers refuses all operators; a model then failed at its first prompt."""
    with caplog.at_level(logging.INFO):
        assert choose_chunk_way([GROUPED], torch.bfloat16, CPU) is with_flash
    (line,) = (record.message for record in caplog.records if record.name == chunk_attention.__name__)
    assert line.startswith(
        "attention of prompts: torch's flash attention; not xformers: NotImplementedError: No operator found"
    )
    assert flash_kernel


def test_sdpa_is_chosen_for_dtypes_that_flash_attention_does_not_support(flash_kernel, caplog):
    with caplog.at_level(logging.INFO):
        assert choose_chunk_way([GROUPED], torch.float32, CPU) is with_sdpa
    assert "not torch's flash attention: RuntimeError: FlashAttention only support fp16 and bf16" in caplog.text


def test_an_implementation_with_wrong_results_is_not_chosen():
    """A mask aligned at the start of a context raises no error."""

    def forgetful(query_lens, context_lens, shape, device):
        inner = with_sdpa(query_lens, query_lens, shape, device)
        return lambda q, k, v: inner(q, k[: len(q)], v[: len(q)])

    assert problem_of(forgetful, GROUPED, torch.float32, CPU) == "its results are wrong"


def test_without_a_working_implementation_the_model_is_refused_with_all_errors(monkeypatch):
    def broken(query_lens, context_lens, shape, device):
        raise OSError("libcudart.so.12:\n cannot open shared object file")

    monkeypatch.setattr(chunk_attention, "WAYS", {"one": broken, "another": broken})
    with pytest.raises(ModelLoadError, match=r"one: OSError: libcudart.so.12: cannot open .*; another: OSError"):
        choose_chunk_way([GROUPED], torch.bfloat16, CPU)


def test_the_pinned_packages_include_a_fast_implementation_for_cuda():
    """xformers if both are built for one CUDA version, otherwise torch's variable-length kernels."""
    requirements = (Path(__file__).parents[3] / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^(torch|xformers)==([^;\s]+)", requirements, re.MULTILINE))
    wheel = distribution("xformers")
    assert wheel.version == pinned["xformers"]
    description, extension = (
        next(file.locate() for file in wheel.files or () if file.match(name))
        for name in ("xformers/cpp_lib.json", "xformers/_C*.so")
    )
    built_for = json.loads(Path(description).read_text())["version"]["cuda"] // 100
    assert {int(major) for major in re.findall(rb"libcudart\.so\.(\d+)", Path(extension).read_bytes())} == {built_for}
    loads = built_for == TORCH_CUDA[pinned["torch"]]  # a new pin of torch: note its CUDA above
    assert loads or find_spec("torch.nn.attention.varlen"), (
        f"xformers is built for CUDA {built_for}, and torch has nothing in its place"
    )
