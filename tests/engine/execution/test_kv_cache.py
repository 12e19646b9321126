"""Size and memory of the KV cache."""

from __future__ import annotations

import logging

import pytest
import torch

from benchmarks.device_targets import SHAPES
from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape, cache_dtype
from engine.attention.cache_groups import CacheGroups, group_layers
from engine.attention.torch_cpu import TorchCpuAttention
from engine.config import EngineConfig
from engine.core.build import build_core
from engine.execution.kv_cache import CacheSize, bytes_per_block, size_cache, step_bytes
from engine.models.registry import describe_folder
from tests.engine.in_process import QueueChannel

LLAMA = {"architectures": ["LlamaForCausalLM"]}
KIB = 1024


def size(**changes):
    arguments = {
        "block_bytes": 16 * KIB,
        "groups": CacheGroups(16),
        "model_len": 2048,
        "wanted_len": 0,
        "max_num_seqs": 4,
        "cache_bytes": 0,
        "free_bytes": 1 << 30,
        "is_cpu": True,
    }
    return size_cache(**(arguments | changes))


def test_the_bytes_of_a_block_are_those_of_the_tensors():
    shape = AttentionShape(num_heads=6, num_kv_heads=2, head_size=16, scale=1.0)
    backend = TorchCpuAttention([shape] * 3, num_blocks=10, block_size=8, dtype=torch.bfloat16)
    assert backend.keys.nbytes + backend.values.nbytes == 10 * bytes_per_block(backend.groups, torch.bfloat16)


def test_a_block_in_eight_bits_takes_half():
    groups = group_layers([0] * 3, [32] * 3, block_size=8)
    half, whole = (bytes_per_block(groups, dtype) for dtype in (torch.float8_e4m3fn, torch.bfloat16))
    assert whole == 2 * half


def test_a_step_needs_the_memory_of_one_layer_at_a_time():
    """The cache took nine tenths of free memory: an eight-bit 70B model on 80 GB had 0.8 GiB for its longest step.

    That step needs 3.6 GiB.
    """
    values = SHAPES["llama-3.1-8b"]
    _, config = describe_folder("8B", values | LLAMA)
    hidden, gates, opened = 4096, 2 * 14336, 14336
    assert step_bytes(config, num_tokens=16_384, dtype=torch.bfloat16) == 16_384 * 2 * (4 * hidden + gates + opened)


def test_a_step_of_a_model_with_wide_attention_needs_what_its_heads_hold():
    _, config = describe_folder("wide", SHAPES["llama-3.1-8b"] | {"intermediate_size": 64} | LLAMA)
    assert step_bytes(config, num_tokens=1, dtype=torch.bfloat16) == 2 * (4 * 4096 + (32 + 8 + 8) * 128 + 32 * 128)


@pytest.mark.parametrize(
    ("device", "kv_cache", "message"),
    [
        ("cpu", "fp8", "needs a CUDA device, got 'cpu': use kv_cache 'auto'"),
        ("cuda", "fp8", "compute capability 8.9, this one has 8.6: use kv_cache 'auto'"),
        ("cuda", "int8", "kv_cache must be one of auto, fp8, got 'int8'"),
    ],
)
def test_a_cache_that_the_device_cannot_hold_is_refused_with_the_remedy(device, kv_cache, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    with pytest.raises(ModelLoadError, match=message):
        cache_dtype("auto", kv_cache, torch.device(device))


def test_an_eight_bit_cache_is_used_only_if_requested(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    cuda = torch.device("cuda")
    found = [cache_dtype(*modes, cuda) for modes in (("auto", "fp8"), ("auto", "auto"), ("float32", "auto"))]
    assert found == [torch.float8_e4m3fn, torch.bfloat16, torch.float32]


def test_an_unsupported_cache_dtype_is_refused_before_the_model_is_read(tmp_path):
    config = EngineConfig(tmp_path / "no such model", "name", kv_cache="fp8")
    with pytest.raises(ModelLoadError, match="needs a CUDA device"):
        build_core(config, QueueChannel())


def test_a_cpu_sizes_its_cache_for_typical_conversations():
    assert size(max_num_seqs=8) == CacheSize(8 * 512 // 16, 2048)


def test_a_cpu_cache_holds_at_least_one_full_context():
    assert size(max_num_seqs=1) == CacheSize(2048 // 16, 2048)


def test_the_cache_takes_at_most_a_quarter_of_free_memory_on_a_cpu():
    assert size(max_num_seqs=1000, free_bytes=16 * KIB * 1000) == CacheSize(250, 2048)


def test_cuda_uses_nine_tenths_of_free_memory():
    assert size(is_cpu=False, free_bytes=16 * KIB * 1000) == CacheSize(900, 2048)


def test_a_configured_cache_size_is_used_unchanged():
    assert size(cache_bytes=16 * KIB * 200, free_bytes=0) == CacheSize(200, 2048)


def test_a_wanted_context_shorter_than_the_models_is_kept():
    assert size(wanted_len=512, max_num_seqs=1) == CacheSize(512 // 16, 512)


def test_the_models_context_is_lowered_with_a_warning_when_it_does_not_fit(caplog):
    with caplog.at_level(logging.WARNING):
        assert size(cache_bytes=16 * KIB * 100) == CacheSize(100, 1600)
    assert "max_model_len lowered from 2048 to 1600" in caplog.text


def test_a_configured_context_that_does_not_fit_is_refused():
    with pytest.raises(ModelLoadError, match="hold 1600 tokens .* context of 2000 needs .* lower max_model_len"):
        size(cache_bytes=16 * KIB * 100, wanted_len=2000)


def test_a_configured_context_beyond_the_models_is_refused():
    with pytest.raises(ModelLoadError, match="max_model_len must be at most 2048"):
        size(wanted_len=4096)


@pytest.mark.parametrize("cache_bytes", [1, 16 * KIB * 15])
def test_memory_for_no_useful_context_is_refused(cache_bytes):
    with pytest.raises(ModelLoadError, match="raise kv_cache_bytes"):
        size(cache_bytes=cache_bytes)


def test_a_tiny_model_is_served_from_a_tiny_cache():
    assert size(cache_bytes=16 * KIB * 4, model_len=64) == CacheSize(4, 64)
