"""Write a GGUF file of a real model's sizes with random weights, for comparisons of speed with llama.cpp.

    python benchmarks/random_file.py qwen3-4b|gemma-3-4b|phi-4-mini OUT.gguf [--layers 8]

Types are those of a Q4_K_M file (llama.cpp, tools/quantize): Q4_K, but Q6_K for the embedding and for the values and
the second feed-forward matrix of half the layers, Q5_K where queries, keys and values are one matrix. The vocabulary
has the model's size and the tokens of bytes; its further tokens never occur in a prompt.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path

import gguf
import numpy as np

BLOCK = 256
SPREAD = 0.02
"""Standard deviation of the weights, about."""
MEAN_SCALE, MEAN_LEVEL = {"Q4_K": 31.5, "Q5_K": 31.5, "Q6_K": 63.5}, {"Q4_K": 7.5, "Q5_K": 15.5, "Q6_K": 0.0}
DEVIATION = {"Q4_K": 4.6, "Q5_K": 9.2, "Q6_K": 18.5}
"""Of random levels."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model whose output shares the embedding."""

    architecture: str
    vocab: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_size: int
    theta: float
    rotated: int = 0
    window: int = 0
    has_head_norms: bool = False
    has_output_norms: bool = False
    is_fused: bool = False


SHAPES = {
    "qwen3-4b": Shape("qwen3", 151936, 2560, 9728, 32, 8, 128, 1e6, has_head_norms=True),
    "gemma-3-4b": Shape(
        "gemma3", 262144, 2560, 10240, 8, 4, 256, 1e6, window=1024, has_head_norms=True, has_output_norms=True
    ),
    "phi-4-mini": Shape("phi3", 200064, 3072, 8192, 24, 8, 128, 1e4, rotated=96, window=262144, is_fused=True),
}
PHI_CONTEXT, PHI_ORIGINAL = 131072, 4096


def matrices(shape: Shape, layer: int, num_layers: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, type, outputs and inputs of a layer's matrices."""
    eighth = num_layers // 8
    is_wide = layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2
    wide = "Q6_K" if is_wide else "Q4_K"
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    if shape.is_fused:
        yield "attn_qkv", "Q5_K", queries + 2 * keys, shape.hidden
        yield "ffn_up", "Q4_K", 2 * shape.inner, shape.hidden
    else:
        yield "attn_q", "Q4_K", queries, shape.hidden
        yield "attn_k", "Q4_K", keys, shape.hidden
        yield "attn_v", wide, keys, shape.hidden
        yield "ffn_gate", "Q4_K", shape.inner, shape.hidden
        yield "ffn_up", "Q4_K", shape.inner, shape.hidden
    yield "attn_output", "Q4_K", shape.hidden, queries
    yield "ffn_down", wide, shape.hidden, shape.inner


def norms(shape: Shape) -> Iterator[tuple[str, int]]:
    """Yield name and width of a layer's norms."""
    yield "attn_norm", shape.hidden
    yield "ffn_norm", shape.hidden
    if shape.has_head_norms:
        yield "attn_q_norm", shape.head_size
        yield "attn_k_norm", shape.head_size
    if shape.has_output_norms:
        yield "post_attention_norm", shape.hidden
        yield "post_ffw_norm", shape.hidden


def random_blocks(draw: np.random.Generator, kind: str, outputs: int, inputs: int) -> np.ndarray:
    """Return valid blocks of random levels and scales: (outputs, bytes of a row) uint8."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    blocks = np.frombuffer(draw.bytes(outputs * inputs // BLOCK * size), np.uint8).reshape(-1, size).copy()
    scale = np.float16(SPREAD / MEAN_SCALE[kind] / DEVIATION[kind])
    if kind == "Q6_K":
        blocks[:, -2:] = scale.reshape(1).view(np.uint8)
    else:
        factors = np.array([scale, scale * MEAN_LEVEL[kind]], np.float16)
        blocks[:, :4] = factors.view(np.uint8)
    return blocks.reshape(outputs, -1)


def write(path: Path, shape: Shape, num_layers: int) -> None:
    """Write the file."""
    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_context_length(PHI_CONTEXT if shape.rotated else 32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_block_count(num_layers)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(shape.theta)
    writer.add_rope_dimension_count(shape.rotated or shape.head_size)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.rotated:
        writer.add_rope_scaling_orig_ctx_len(PHI_ORIGINAL)
        writer.add_rope_scaling_attn_factors((1 + log(PHI_CONTEXT / PHI_ORIGINAL) / log(PHI_ORIGINAL)) ** 0.5)
        for name in ("rope_factors_long", "rope_factors_short"):
            writer.add_tensor(f"{name}.weight", np.ones(shape.rotated // 2, np.float32))
    add_tokenizer(writer, shape.vocab)

    def add(name: str, kind: str, outputs: int, inputs: int) -> None:
        blocks = random_blocks(draw, kind, outputs, inputs)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType[kind])

    add("token_embd", "Q6_K", shape.vocab, shape.hidden)
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    for layer in range(num_layers):
        for name, width in norms(shape):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
        for name, kind, outputs, inputs in matrices(shape, layer, num_layers):
            add(f"blk.{layer}.{name}", kind, outputs, inputs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    """Add byte-level BPE whose merges make only pairs of letters."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    characters = [chr(byte) for byte in visible] + [chr(256 + index) for index in range(len(others))]
    pairs = ["t h", "i n", "e r", "a n"]
    tokens = [*characters, *(pair.replace(" ", "") for pair in pairs), "<|end|>"]
    tokens += [f"<unused {index}>" for index in range(vocab - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    end = tokens.index("<|end|>")
    writer.add_token_types([gguf.TokenType.NORMAL] * end + [gguf.TokenType.CONTROL] * (vocab - end))
    writer.add_token_merges(pairs)
    writer.add_eos_token_id(end)
    writer.add_bos_token_id(end)
    writer.add_add_bos_token(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    write(options.out, SHAPES[options.shape], options.layers)
    print(f"{options.out}: {options.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
