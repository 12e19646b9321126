"""A cache takes memory when it is written, not when it is allocated."""

from __future__ import annotations

import mmap
import resource
import sys
from pathlib import Path

import pytest
import torch

from engine.attention.torch_cpu import untouched_zeros


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_unwritten_parts_of_the_cache_take_no_memory() -> None:
    before = resident_bytes()
    cache = untouched_zeros(64, 1 << 20, 4, dtype=torch.bfloat16)
    assert resident_bytes() - before < 64 << 20
    assert not cache[17].any()
    cache[40] = 1
    assert cache[40].all()
    assert (resident_bytes() - before) >= cache[40].nbytes
    assert resident_bytes() - before < 128 << 20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_untouched_zeros_are_zeros_of_the_shape(dtype: torch.dtype) -> None:
    zeros = untouched_zeros(3, 5, 7, dtype=dtype)
    assert (zeros.shape, zeros.dtype, zeros.is_contiguous()) == ((3, 5, 7), dtype, True)
    assert torch.equal(zeros, torch.zeros(3, 5, 7, dtype=dtype))
    assert untouched_zeros(0, 4, dtype=dtype).shape == (0, 4)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="has no huge pages")
def test_a_kernel_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9999)
    assert not untouched_zeros(3, 5, dtype=torch.float32).any()
