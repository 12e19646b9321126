"""The choice of the attention backend for a device, made once, when the model runner is built."""

from __future__ import annotations

import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionBackend, AttentionShape

KV_CACHES = ("auto", "fp8")
FP8_CAPABILITY = (8, 9)
"""The least that converts eight-bit floats: Ada, Hopper and later."""
CPU = torch.device("cpu")


def cache_dtype(weights: str, kv_cache: str = "auto", device: torch.device = CPU) -> torch.dtype:
    """Return float32 for float32 weights, the reference; else bfloat16, which halves the memory and, on a CPU, the time
    of long contexts.

    "fp8" halves the memory again. Raises ModelLoadError on a device that does not support it.
    """
    if kv_cache not in KV_CACHES:
        raise ModelLoadError(f"kv_cache must be one of {', '.join(KV_CACHES)}, got {kv_cache!r}")
    if kv_cache == "auto":
        return torch.float32 if weights == "float32" else torch.bfloat16
    if device.type != "cuda":
        raise ModelLoadError(f"kv_cache 'fp8' needs a CUDA device, got {device.type!r}: use kv_cache 'auto'")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        wanted, found = (".".join(map(str, version)) for version in (FP8_CAPABILITY, capability))
        raise ModelLoadError(
            f"kv_cache 'fp8' needs a device of compute capability {wanted}, this one has {found}: use kv_cache 'auto'"
        )
    return torch.float8_e4m3fn


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
    """Build the backend and its cache. Backends of other devices are not imported."""
    sizes = {"num_layers": num_layers, "num_blocks": num_blocks, "block_size": block_size}

    if device.type == "cpu":
        from engine.attention.torch_cpu import TorchCpuAttention

        return TorchCpuAttention(shape, dtype=dtype, batch_invariant=batch_invariant, **sizes)
    from engine.attention.xformers_paged import XformersAttention

    return XformersAttention(shape, device=device, dtype=dtype, batch_invariant=batch_invariant, **sizes)
