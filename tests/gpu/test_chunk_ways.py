"""On a CUDA device: the implementations of chunk attention over usual heads, and an error that loses the device."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from engine.attention.backend import AttentionShape
from engine.attention.chunk_attention import choose_chunk_way, problem_of, with_flash, with_sdpa

pytestmark = pytest.mark.gpu
LOSES_THE_DEVICE = """
import torch
from engine.execution.device import has_lost_device
try:
    torch.arange(4, device="cuda")[torch.tensor([9], device="cuda")].cpu()
except RuntimeError as error:
    print(has_lost_device(error), has_lost_device(RuntimeError("something else")))
"""


@pytest.mark.parametrize("head_size", [64, 96, 128, 256])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 8])
@pytest.mark.parametrize(
    ("way", "dtype"), [(with_flash, torch.bfloat16), (with_sdpa, torch.bfloat16), (with_sdpa, torch.float32)]
)
def test_attention_implementations_of_torch_are_correct(way, dtype, num_kv_heads, head_size):
    shape = AttentionShape(8, num_kv_heads, head_size, head_size**-0.5)
    assert problem_of(way, shape, dtype, torch.device("cuda")) == ""


def test_half_precision_does_not_end_at_the_slowest_way():
    assert (
        choose_chunk_way([AttentionShape(8, 2, 128, 128**-0.5)], torch.bfloat16, torch.device("cuda")) is not with_sdpa
    )


def test_an_index_out_of_bounds_loses_the_device_for_good():
    answer = subprocess.run([sys.executable, "-c", LOSES_THE_DEVICE], capture_output=True, text=True, timeout=120)
    assert answer.stdout.split() == ["True", "True"], answer.stderr
