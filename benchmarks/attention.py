"""Time the attention of one layer on a CPU: next tokens over long contexts, and chunks of a prompt behind theirs.

    python benchmarks/attention.py [--dtype bfloat16] [--rounds 5]

On one thread, in processor time, the least of the rounds: microseconds of a next token, milliseconds of a chunk, and
its products in thousands of millions a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.torch_cpu import TorchCpuAttention
from engine.kernels.cpu.threads import KERNEL_THREADS

BLOCK_SIZE = 16
SHAPES = {
    "SmolLM2-135M": (9, 3, 64),
    "Qwen2.5-1.5B": (12, 2, 128),
    "Llama-3-8B": (32, 8, 128),
    "Phi-3-mini": (32, 32, 96),
}
NEXT_TOKENS = (256, 2048, 8192)
CHUNK, CHUNKS_END = 512, (512, 2048, 8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    for name, sizes in SHAPES.items():
        tokens = [f"{_seconds(sizes, context, 1, dtype, options.rounds) * 1e6:.0f}" for context in NEXT_TOKENS]
        chunks = []
        for context in CHUNKS_END:
            seconds = _seconds(sizes, context, CHUNK, dtype, options.rounds)
            products = 2 * CHUNK * (context - CHUNK / 2) * sizes[0] * sizes[2]
            chunks.append(f"{seconds * 1e3:.1f} ({products / seconds / 1e9:.0f})")
        print(f"{name}: next token at {NEXT_TOKENS}: {', '.join(tokens)} us; ", end="")
        print(f"{CHUNK} tokens up to {CHUNKS_END}: {', '.join(chunks)} ms (G/s)")


def _seconds(sizes: tuple[int, int, int], context: int, num_new: int, dtype: torch.dtype, rounds: int) -> float:
    num_heads, num_kv_heads, head_size = sizes
    shape = AttentionShape(num_heads, num_kv_heads, head_size, head_size**-0.5)
    num_blocks = context // BLOCK_SIZE
    backend = TorchCpuAttention([shape], num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=dtype)
    for cache in (backend.keys, backend.values):
        cache.normal_()
    slots = torch.arange(context - num_new, context)[None]
    layout = StepLayout([num_new], [context], slots, [list(range(num_blocks))], num_decodes=int(num_new == 1))
    q = torch.randn(num_new, num_heads, head_size)
    k, v = (torch.randn(num_new, num_kv_heads, head_size) for _ in range(2))
    with KERNEL_THREADS.single_threaded():
        step = backend.begin_step(layout)
        return min(_timed(lambda: step.attend(0, q, k, v)) for _ in range(rounds + 1))


def _timed(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


if __name__ == "__main__":
    main()
