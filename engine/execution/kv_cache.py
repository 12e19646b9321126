"""The size of the KV cache: the bytes of a block, the memory that is free at load, and how many blocks fit."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.api.errors import ModelLoadError
from engine.api.model import LEAST_CONTEXT
from engine.attention.cache_groups import CacheGroups
from engine.models.config import ModelConfig

logger = logging.getLogger(__name__)

TYPICAL_TOKENS = 512
"""Tokens per running sequence for which a cache of default size has room on a CPU."""
CPU_SHARE = 0.25
CUDA_SHARE = 0.9
CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where the limit and the use of a control group stand, version 2 and version 1."""
FILE_PAGES = ("inactive_file", "active_file")
"""What the use of a control group counts although the system takes it back when memory is needed."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """`num_blocks` of the cache, and the longest context that fits the model and the cache."""

    num_blocks: int
    max_model_len: int


def bytes_per_block(groups: CacheGroups, dtype: torch.dtype) -> int:
    """Return the bytes of a block: keys and values of `block_size` positions in the layers of a group."""
    return 2 * groups.num_tensors * groups.part_size * dtype.itemsize


def step_bytes(model: ModelConfig, *, num_tokens: int, dtype: torch.dtype) -> int:
    """Return the most memory that a step needs besides weights and cache; layers run one after another.

    A layer holds the residual stream, the addend, the norm and a product, with queries, keys, values and the attention
    output, or with the gates of the MLP.
    """
    shapes = [layer.attention for layer in model.layers]
    attention = max(2 * (heads.num_heads + heads.num_kv_heads) * heads.head_size for heads in shapes)
    return num_tokens * dtype.itemsize * (4 * model.hidden_size + max(attention, 3 * model.intermediate_size))


def size_cache(
    *,
    block_bytes: int,
    groups: CacheGroups,
    model_len: int,
    wanted_len: int,
    max_num_seqs: int,
    cache_bytes: int,
    free_bytes: int,
    is_cpu: bool,
) -> CacheSize:
    """Fix the number of blocks and the context length. Raises ModelLoadError with what to change.

    1. The cache has `cache_bytes` if given, else a share of `free_bytes`; on a CPU no more than `max_num_seqs`
       conversations or one full context need.
    2. The context is `wanted_len` if given, else what the model was made for, `model_len`.
    3. A context that does not fit the cache is refused if it was asked for, else shortened with a warning.
    """
    wanted_blocks = groups.blocks_for(wanted_len or model_len)
    budget = cache_bytes
    if not budget:
        budget = int(free_bytes * (CPU_SHARE if is_cpu else CUDA_SHARE))
        if is_cpu:
            budget = min(budget, block_bytes * max(wanted_blocks, max_num_seqs * groups.blocks_for(TYPICAL_TOKENS)))
    num_blocks = budget // block_bytes
    capacity_tokens = groups.capacity_tokens(num_blocks)
    max_model_len = min(wanted_len or model_len, capacity_tokens)
    if wanted_len > model_len:
        raise ModelLoadError(
            f"max_model_len must be at most {model_len}, the context that the model was made for, got {wanted_len}"
        )
    if num_blocks < wanted_blocks:
        need, have = wanted_blocks * block_bytes, num_blocks * block_bytes
        if wanted_len or max_model_len < min(LEAST_CONTEXT, model_len):
            raise ModelLoadError(
                f"the KV cache can hold {capacity_tokens} tokens ({_mebibytes(have)}), but a context of "
                f"{wanted_len or model_len} needs {_mebibytes(need)}: lower max_model_len, on CUDA "
                "max_num_batched_tokens too, raise kv_cache_bytes or free memory"
            )
        logger.warning(
            "max_model_len lowered from %d to %d: the KV cache has room for %s, a full context needs %s",
            model_len,
            max_model_len,
            _mebibytes(have),
            _mebibytes(need),
        )
    return CacheSize(num_blocks, max_model_len)


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be allocated: on the CUDA device, or in the machine and the container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_machine_free(), _container_free())


def _machine_free() -> int:
    """Return MemAvailable, which includes reclaimable page cache; the physical memory if not on Linux."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_free(cgroups: Sequence[tuple[Path, str, str]] = CGROUPS) -> int:
    """Return the limit of the control group minus its use, pages of files aside; very large if there is none."""
    for folder, limit_file, used_file in cgroups:
        try:
            limit = (folder / limit_file).read_text().strip()
            used = int((folder / used_file).read_text())
        except OSError:
            continue
        if limit.isdigit():
            return max(0, int(limit) - max(0, used - _file_pages(folder)))
    return 1 << 62


def _file_pages(folder: Path) -> int:
    """Return the bytes of a control group's pages of files; 0 where the system does not say."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(FILE_PAGES))
