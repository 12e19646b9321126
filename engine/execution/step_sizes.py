"""The most tokens that steps may get, before anything is measured, and the cache groups that depend on them."""

from __future__ import annotations

import torch

from engine.attention.backend import kv_sizes
from engine.attention.cache_groups import CacheGroups, group_layers
from engine.config import EngineConfig
from engine.execution.step_programs import MANY_ROWS
from engine.execution.token_budget import PREFILL_ONLY_STEPS
from engine.models.config import ModelConfig

MIN_STEP_TOKENS = 64
MAX_STEP_TOKENS = 2048
CPU_STEP_TOKENS = MANY_ROWS
"""The most tokens of a step on a CPU: larger ones are not recorded, and take 1.1 to 1.5 times as long a token."""
LARGE_DEVICE_BYTES, LARGE_STEP_TOKENS = 70 << 30, 8192
"""Devices with so much memory compute longer steps."""


def least_step_tokens(max_num_seqs: int) -> int:
    """Return the smallest budget: it has a next token for each running sequence."""
    return max(MIN_STEP_TOKENS, min(max_num_seqs, MAX_STEP_TOKENS))


def most_cpu_tokens(max_num_seqs: int) -> int:
    return max(CPU_STEP_TOKENS, least_step_tokens(max_num_seqs))


def device_step_tokens(device: torch.device) -> int:
    is_large = torch.cuda.get_device_properties(device).total_memory >= LARGE_DEVICE_BYTES
    return LARGE_STEP_TOKENS if is_large else MAX_STEP_TOKENS


def most_prefill_only_tokens(config: EngineConfig, device: torch.device) -> int:
    """Return the largest budget of tokens that steps without decodes may get."""
    if config.max_num_batched_tokens:
        return PREFILL_ONLY_STEPS * config.max_num_batched_tokens
    if device.type == "cpu":
        return most_cpu_tokens(config.max_num_seqs)
    return PREFILL_ONLY_STEPS * device_step_tokens(device)


def cache_groups(model: ModelConfig, config: EngineConfig, device: torch.device) -> CacheGroups:
    """Return the groups of a model's layers."""
    shapes = [layer.attention for layer in model.layers]
    return group_layers(
        [shape.window for shape in shapes],
        kv_sizes(shapes, config.block_size, device),
        block_size=config.block_size,
        chunk_tokens=most_prefill_only_tokens(config, device),
        sources=[shape.source for shape in shapes],
    )
