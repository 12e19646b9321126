"""Time products with one weight as our kernels hold its numbers, and in eight bits, in turns.

    python benchmarks/products.py [--types IQ4_NL,Q4_0] [--shapes 2048x2048,8960x1536] [--rows 1,8,64,512]
        [--threads 1] [--rounds 10]

Types are those of GGUF files and of `engine/quantization/folder_blocks.py`, shapes outputs x inputs, numbers random.
Where the processor has tiles (AMX), they are timed with and without them.
Copies of a weight that take COLD_BYTES keep it out of the caches, as in a model. Prints bytes a token, and of each row
count the least microseconds of a product: processor time with one thread, the clock with more.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from time import perf_counter, thread_time

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.gguf_file import BLOCK_TYPES
from engine.kernels.cpu.integer_vectors import has_tiles
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.quantization.folder_blocks import BLOCK, BLOCK_BYTES
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import quantize_groups

COLD_BYTES = 128 << 20
ROUND_S = 0.05
"""Time of one weight in a round."""


def random_matrix(type_name: str, shape: tuple[int, int]) -> StoredMatrix:
    """Return random bytes below 60: numbers of two or four among them are finite and below 1."""
    sizes = {kind.name: (kind.block_size, kind.block_bytes) for kind in BLOCK_TYPES.values()}
    size, num_bytes = sizes.get(type_name) or (BLOCK, BLOCK_BYTES[type_name])
    width = shape[1] // size * num_bytes
    return StoredMatrix.from_blocks(type_name, torch.randint(0, 60, (shape[0], width), dtype=torch.uint8), shape)


def copies(weight: PanelWeight) -> list[PanelWeight]:
    return [weight] + [copy.deepcopy(weight) for _ in range(COLD_BYTES // weight.num_bytes)]


def least(weights: dict[str, list[PanelWeight]], x: torch.Tensor, rounds: int) -> dict[str, float]:
    """Return the least microseconds of a product with each weight."""
    clock = thread_time if KERNEL_THREADS.num_threads == 1 else perf_counter
    fastest = dict.fromkeys(weights, float("inf"))
    for _ in range(rounds):
        for name, forms in weights.items():
            end = clock() + ROUND_S
            while clock() < end:
                next_forms, forms[:] = forms[:8], forms[8:] + forms[:8]
                start = clock()
                for form in next_forms:
                    form(x)
                fastest[name] = min(fastest[name], (clock() - start) / len(next_forms))
    return {name: 1e6 * seconds for name, seconds in fastest.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default="Q4_0,IQ4_NL")
    parser.add_argument("--shapes", default="2048x2048,8960x1536")
    parser.add_argument("--rows", default="1,8,64,512")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    KERNEL_THREADS.start(options.threads)
    rows = [int(number) for number in options.rows.split(",")]
    print(f"{'shape':14} {'as':12} {'MB a token':>10} " + "".join(f"{number:>10}" for number in rows))
    for shape in options.shapes.split(","):
        num_outputs, num_inputs = map(int, shape.split("x"))
        weights = {}
        for type_name in options.types.split(","):
            matrix = random_matrix(type_name, (num_outputs, num_inputs))
            weights[type_name] = copies(PanelWeight.of_matrix(matrix))
            if has_tiles():
                weights[f"{type_name} tiles"] = copies(PanelWeight.of_matrix(matrix, may_take_tiles=True))
        weights["eight bits"] = copies(PanelWeight.eight_bit(*quantize_groups(matrix)))
        times = [least(weights, torch.randn(number, num_inputs), options.rounds) for number in rows]
        for name, forms in weights.items():
            figures = "".join(f"{by_rows[name]:10.0f}" for by_rows in times)
            print(f"{shape:14} {name:12} {forms[0].num_bytes / 1e6:10.2f} {figures}", flush=True)


if __name__ == "__main__":
    main()
