"""`python -m engine.core.memory_need CONFIG [MEMORY_BYTES]`: say what a core would take, without reading its weights.

CONFIG is what `engine.core.link.pack_config` writes. MEMORY_BYTES is the memory that would be free for the core; by
default, what is free now. Prints an object with the fields of `MemoryNeed` and exits with 0; or prints the problem and
exits with 1. A host of several models runs it in a process of its own before it starts a core, as a model's files are
not trusted and torch is large. It then fixes the cache by `kv_cache_bytes`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from math import prod
from pathlib import Path

import torch

from engine.api.errors import ModelLoadError
from engine.api.model import LEAST_CONTEXT, MemoryNeed
from engine.attention.backend import cache_dtype
from engine.attention.cache_groups import CacheGroups
from engine.config import EngineConfig
from engine.core.build import COMPILER, TORCH, adapter_dtype, media_dtype, speech_dtype
from engine.core.link import unpack_config
from engine.execution.device import check_device
from engine.execution.encoder_memory import encoder_bytes
from engine.execution.encoder_runner import MAX_STEP_TOKENS
from engine.execution.kv_cache import CacheSize, bytes_per_block, free_memory, size_cache, step_bytes
from engine.execution.media import CACHE_BYTES
from engine.execution.step_sizes import cache_groups, most_prefill_only_tokens
from engine.gguf_pair import find_projector, text_file
from engine.inputs.sound import MAX_HELD_BYTES
from engine.loading.adapter import adapter_weights
from engine.loading.checkpoint import FileCheckpoint
from engine.loading.encoder_checkpoint import open_encoder
from engine.loading.loader import open_checkpoint
from engine.loading.maker_defaults import maker_defaults
from engine.loading.speech_checkpoint import open_speech
from engine.memory import page_out, trim_heap
from engine.model_kind import SpeechPurpose, read_purpose
from engine.quantization.scheme import WeightScheme
from engine.scheduling.transcriptions import MOST_BEGUN, MOST_BEGUN_S, SHORT_S

BASE_BYTES = 370 << 20
"""An idle core on Linux with torch 2.13, where the system does not say what this process has."""
LOGIT_BYTES = 4
STEP_ROWS = 12
"""Numbers of the width of an encoder that a token of a step has at once."""
TRANSFORMERS_BYTES = 150 << 20
"""What transformers with the modules of a family takes."""
SOUND_ROWS = 16_000 + 128 * 100
"""Numbers of a second of sound that a request holds while it begins: its samples, and the bands of its frames."""
WINDOW_STATES = 1_500
"""Of a window of 30 seconds."""
KEPT_BYTES = 64 << 20
"""Freed memory that the C library keeps (`trim_threshold` of engine.core.link), programs of few rows, and what
libraries allocate in their first steps: 35 to 88 MiB where it was measured (benchmarks/LOG.md)."""


def memory_need(config: EngineConfig, memory_bytes: int = 0) -> MemoryNeed:
    """Compute the memory of a core. `memory_bytes`: free for all of it; 0: what is free now.

    A cache without a configured size has what the engine would give it. Where the engine would refuse that, it has room
    for the configured context, or for LEAST_CONTEXT tokens: `MemoryNeed.refusal` says whether that fits. Raises
    ModelLoadError for a model that cannot be served, and for a context beyond the model or beyond `kv_cache_bytes`.
    """
    base = resident_bytes()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = check_device(config.device, config.weights, config.kv_cache, config.batch_invariant)
    purpose = read_purpose(config.model_path, config.projector)
    if purpose.is_encoder:
        return encoder_need(config, base)
    if purpose.speech is not None:
        return speech_need(config, purpose.speech, base)
    scheme = WeightScheme(config.weights, device, config.batch_invariant)
    checkpoint, model, _ = open_checkpoint(config.model_path)
    weights = checkpoint.held_bytes(scheme)
    base, kept_vectors = (base + TRANSFORMERS_BYTES, CACHE_BYTES) if purpose.modalities else (base, 0)
    if purpose.modalities and isinstance(checkpoint, FileCheckpoint):
        weights += _encoder_weights(config, checkpoint) * media_dtype(config).itemsize
    if purpose.image_adapter is not None:
        weights += adapter_weights(purpose.image_adapter) * adapter_dtype(config).itemsize
    media = encoder_bytes(config, media_dtype(config))
    groups = cache_groups(model, config, device)
    block_bytes = bytes_per_block(groups, cache_dtype(config.weights, config.kv_cache, device))
    is_cpu = device.type == "cpu"
    scratch = step_bytes(model, num_tokens=most_prefill_only_tokens(config, device), dtype=scheme.activation_dtype)
    logits = config.max_num_seqs * model.vocab_size * LOGIT_BYTES
    taken = weights + (base if is_cpu else scratch + media)
    free = max(0, (memory_bytes or free_memory(device)) - taken)
    size = _cache_size(config, groups, block_bytes, model.max_position, free, is_cpu)
    return MemoryNeed(
        weights_bytes=weights,
        mapped_bytes=0,
        cache_bytes=size.num_blocks * block_bytes,
        cache_bytes_per_token=-(-block_bytes * groups.count // config.block_size),
        scratch_bytes=scratch + kept_vectors + logits + KEPT_BYTES * is_cpu,
        media_bytes=media,
        base_bytes=base,
        context=size.max_model_len,
        max_context=model.max_position,
        maker_defaults=maker_defaults(config.model_path),
    )


def _encoder_weights(config: EngineConfig, checkpoint: FileCheckpoint) -> int:
    """Return the numbers of what makes inputs of a model out of media."""
    projector = find_projector(text_file(config.model_path), config.projector)
    return checkpoint.num_other_weights if projector is None else sum(map(prod, projector.shapes.values()))


def encoder_need(config: EngineConfig, base_bytes: int) -> MemoryNeed:
    """Compute the memory of an encoder's core: weights in floats and a step, but no cache. Raises ModelLoadError."""
    checkpoint, model, _ = open_encoder(config.model_path)
    context = config.max_model_len or checkpoint.max_position
    num_bytes = 2 if config.weights == "bf16" else 4
    step = max(context, config.max_num_batched_tokens or MAX_STEP_TOKENS)
    return MemoryNeed(
        weights_bytes=num_bytes * checkpoint.num_weights,
        mapped_bytes=0,
        cache_bytes=0,
        cache_bytes_per_token=0,
        scratch_bytes=num_bytes * step * (STEP_ROWS * model.hidden_size + 2 * model.intermediate_size),
        base_bytes=base_bytes,
        context=context,
        max_context=checkpoint.max_position,
    )


def speech_need(config: EngineConfig, speech: SpeechPurpose, base_bytes: int) -> MemoryNeed:
    """Compute the memory of a core that writes down speech. Raises ModelLoadError.

    Beside weights it holds sounds and their inputs, and for each request that goes on the states of a window.
    """
    opened = open_speech(config.model_path, speech)
    num_bytes = speech_dtype(config).itemsize
    begun_s = max(MOST_BEGUN_S, config.media.max_transcription_seconds) + MOST_BEGUN * SHORT_S
    sounds = MAX_HELD_BYTES + SOUND_ROWS * begun_s * 4
    states = MOST_BEGUN * WINDOW_STATES * opened.width * num_bytes * 2 * opened.num_layers
    return MemoryNeed(
        weights_bytes=num_bytes * opened.num_weights,
        mapped_bytes=0,
        cache_bytes=0,
        cache_bytes_per_token=0,
        scratch_bytes=sounds + states,
        base_bytes=base_bytes + TRANSFORMERS_BYTES,
        context=opened.max_position,
        max_context=opened.max_position,
    )


def _cache_size(
    config: EngineConfig, groups: CacheGroups, block_bytes: int, model_len: int, free_bytes: int, is_cpu: bool
) -> CacheSize:
    """Return the cache that the engine would make, or the least one that serves where it would refuse."""

    def sized(cache_bytes: int) -> CacheSize:
        return size_cache(
            block_bytes=block_bytes,
            groups=groups,
            model_len=model_len,
            wanted_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            cache_bytes=cache_bytes,
            free_bytes=free_bytes,
            is_cpu=is_cpu,
        )

    least = groups.blocks_for(config.max_model_len or min(LEAST_CONTEXT, model_len)) * block_bytes
    try:
        return sized(config.kv_cache_bytes)
    except ModelLoadError:
        if config.kv_cache_bytes:
            raise
        return sized(least)


def resident_bytes() -> int:
    """Return the resident memory of this process, which has imported what a core has; BASE_BYTES if not on Linux."""
    page_out(TORCH)
    page_out(COMPILER)
    trim_heap()
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return BASE_BYTES
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def main(packed: str, memory_bytes: str = "0") -> int:
    """Print what a core needs and return the exit code."""
    try:
        need = memory_need(unpack_config(packed.encode()), int(memory_bytes))
        sys.stdout.write(json.dumps(dataclasses.asdict(need)) + "\n")
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
