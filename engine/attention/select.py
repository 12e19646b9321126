"""Chooses the attention backend of a device, once, when the model runner is built."""

from __future__ import annotations

import torch

from engine.attention.backend import AttentionBackend, AttentionShape


def cache_dtype(weights: str) -> torch.dtype:
    """float32 beside float32 weights, the reference; else bfloat16, which halves the memory and, on a CPU, the time of long contexts."""
    return torch.float32 if weights == "float32" else torch.bfloat16


def make_backend(
    device: torch.device,
    shape: AttentionShape,
    *,
    num_layers: int,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    batch_invariant: bool,
) -> AttentionBackend:
    """Build the backend and its cache. The backend of the other device is not imported."""
    sizes = {"num_layers": num_layers, "num_blocks": num_blocks, "block_size": block_size}

    if device.type == "cpu":
        from engine.attention.torch_cpu import TorchCpuAttention

        return TorchCpuAttention(shape, dtype=dtype, batch_invariant=batch_invariant, **sizes)
    from engine.attention.xformers_paged import XformersAttention

    return XformersAttention(shape, device=device, dtype=dtype, batch_invariant=batch_invariant, **sizes)
