"""Compare a model under each form of its weights with float32 over the file's own dequantised weights.

    python benchmarks/quality.py --model PATH [--text PATH] [--forms auto,bf16,panels,int8_panels] [--tokens 0]

The text is read as one sequence, CHUNK tokens per step as for prompts; the next token of every position is scored.
Prints a line per form: perplexity, its excess over float32, mean KL divergence from float32, and how often both rank
the same token first. A form is a value of LIGHTCONE_WEIGHTS, or names of `engine/quantization/scheme.py` joined by `+`:
each matrix takes the first that it can. The text is the first chapter of Lewis Carroll's Alice's Adventures in
Wonderland (1865), public domain.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.attention.backend import cache_dtype, kv_sizes, make_backend
from engine.attention.cache_groups import group_layers
from engine.execution.batch import BatchBuilder, dummy_sequence
from engine.kernels.cpu.integer_vectors import has_tiles
from engine.loading.loader import LoadedModel, load_model
from engine.quantization import scheme
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.torch_forms import Int4Weight
from engine.sequence import Chunk, StepPlan
from engine.tokenizers.tokenizer import Tokenizer

TEXT = Path(__file__).parent / "data" / "alice.txt"
CPU = torch.device("cpu")
CHUNK, BLOCK_SIZE = 128, 16


def load(path: Path, form: str, max_model_len: int) -> LoadedModel:
    """Load a model whose matrices all take one form."""
    if form in scheme.MODES:
        return load_model(path, weights=form, max_model_len=max_model_len)
    names = form.split("+")

    def first_that_fits(shape: tuple[int, int], four_bit: bool) -> set[str]:
        is_ours = PanelWeight.fits(shape)
        fits = {"int4": four_bit and Int4Weight.fits(shape), "panels": is_ours, "int8_panels": is_ours}
        fits["panels_amx"] = is_ours and has_tiles()
        return {next(name for name in [*names, "float32"] if fits.get(name, True))}

    with patch.object(scheme, "possible_forms", first_that_fits):
        return load_model(path, max_model_len=max_model_len)


def predictions(loaded: LoadedModel, weights: str, token_ids: list[int]) -> Iterator[torch.Tensor]:
    """Return log-probabilities (T, V) after each token of the next chunk."""
    shapes = [layer.attention for layer in loaded.config.layers]
    groups = group_layers([0] * len(shapes), kv_sizes(shapes, BLOCK_SIZE, CPU), block_size=BLOCK_SIZE)
    num_blocks = groups.blocks_for(len(token_ids))
    backend = make_backend(
        CPU,
        shapes,
        num_blocks=num_blocks,
        groups=groups,
        dtype=cache_dtype(weights),
        batch_invariant=False,
    )
    batches = BatchBuilder(groups, CPU)
    sequence = dummy_sequence(0, token_ids, groups.lone_table(len(token_ids)))
    for start in range(0, len(token_ids), CHUNK):
        chunk = Chunk(sequence, start, min(CHUNK, len(token_ids) - start), False)
        batch = batches.build(StepPlan((chunk,)))
        hidden = loaded.decoder.forward(batch.token_ids, batch.positions, backend.begin_step(batch.layout))
        yield loaded.decoder.logits(hidden).log_softmax(-1)


class Comparison:
    """Sums over the scored positions of a text."""

    def __init__(self, token_ids: list[int]) -> None:
        self._next_ids = torch.tensor(token_ids[1:])
        self._count = 0
        self._surprise = self._divergence = 0.0
        self._same = 0

    def add(self, logprobs: torch.Tensor, reference: torch.Tensor) -> None:
        """Add two (T, V), of the next positions."""
        next_ids = self._next_ids[self._count : self._count + len(logprobs)]
        count = len(next_ids)
        logprobs, reference = logprobs[:count], reference[:count]
        self._count += count
        self._surprise -= logprobs.gather(1, next_ids[:, None]).double().sum().item()
        self._divergence += (reference.exp() * (reference - logprobs)).sum(-1).double().sum().item()
        self._same += int((logprobs.argmax(-1) == reference.argmax(-1)).sum())

    @property
    def perplexity(self) -> float:
        return math.exp(self._surprise / self._count)

    def line(self, perplexity: float) -> str:
        """Return the figures beside the perplexity of the reference."""
        more = 100 * (self.perplexity / perplexity - 1)
        return (
            f"{self.perplexity:10.4f} {more:+7.2f} % {self._divergence / self._count:10.5f} "
            f"{100 * self._same / self._count:7.1f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--forms", default="auto,bf16,panels,int8_panels,int4+int8_packed,int8_packed")
    parser.add_argument("--tokens", type=int, default=0, help="how many to read; 0: all that fit")
    options = parser.parse_args()
    token_ids = Tokenizer.from_path(options.model).encode(options.text.read_text(), add_special_tokens=True)
    token_ids = token_ids[: options.tokens or None]
    reference = list(predictions(load(options.model, "float32", len(token_ids)), "float32", token_ids))
    print(
        f"{len(token_ids)} tokens of {options.text.name}; {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}"
    )
    print(f"{'form':24} perplexity    added    mean KL  same token")
    perplexity = 0.0
    for form in ["float32", *options.forms.split(",")]:
        comparison = Comparison(token_ids)
        loaded = None if form == "float32" else load(options.model, form, len(token_ids))
        chunks = reference if loaded is None else predictions(loaded, form, token_ids)
        for logprobs, expected in zip(chunks, reference, strict=True):
            comparison.add(logprobs, expected)
        perplexity = perplexity or comparison.perplexity
        print(f"{form:24} {comparison.line(perplexity)}", flush=True)


if __name__ == "__main__":
    main()
