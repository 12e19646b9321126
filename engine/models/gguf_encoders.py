"""Encoders in GGUF files, as llama.cpp's converter writes them: `bert` (BERT, XLM-RoBERTa) and `nomic-bert`.

The file does not say which biases and gates there are: its tensors do. XLM-RoBERTa's table of positions has no rows of
padding here.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.api.errors import ModelLoadError
from engine.models.encoder_config import EncoderActivation, EncoderConfig, EncoderFamily, ScoreHead
from engine.models.fields import Fields

POSITIONS, SEGMENTS = "position_embd.weight", "token_types.weight"
EMBEDDING, GATE, QKV_BIASES = "token_embd.weight", "blk.0.ffn_gate.weight", ("blk.0.attn_qkv.bias", "blk.0.attn_q.bias")


def describe(fields: Fields, shapes: Mapping[str, tuple[int, ...]]) -> EncoderConfig:
    """Describe the encoder of a file. `shapes`: of its tensors. Raises ModelLoadError."""
    fields.expect("attention.causal", False)
    if EMBEDDING not in shapes:
        raise ModelLoadError(f"{fields.source}: tensor {EMBEDDING!r} is missing")
    num_layers, has_positions, is_gated = fields.num_layers, POSITIONS in shapes, GATE in shapes
    most = fields.size("max_position")
    return EncoderConfig(
        architecture=fields.architecture,
        vocab_size=shapes[EMBEDDING][0],
        hidden_size=fields.size("hidden_size"),
        num_layers=num_layers,
        num_heads=fields.size("num_heads"),
        intermediate_size=fields.size("intermediate_size"),
        max_position=shapes[POSITIONS][0] if has_positions else most,
        norm_eps=fields.number("layer_norm_eps"),
        activation=EncoderActivation.SILU if is_gated else EncoderActivation.GELU,
        has_position_table=has_positions,
        num_segments=shapes[SEGMENTS][0] if SEGMENTS in shapes else 0,
        thetas=() if has_positions else (fields.number("rope.freq_base", 10000.0),) * num_layers,
        is_gated=is_gated,
        attention_bias=any(name in shapes for name in QKV_BIASES),
        mlp_bias="blk.0.ffn_up.bias" in shapes,
    )


HEAD = ScoreHead("cls", "cls.output", EncoderActivation.TANH)
FAMILY = EncoderFamily(
    "BERT, XLM-RoBERTa and NomicBERT in GGUF files",
    hf_names=(),
    describe=lambda fields: describe(fields, {}),
    layer="blk",
    tensors={
        "embedding": (("token_embd",),),
        "positions": (("position_embd",),),
        "segments": (("token_types",),),
        "embedding_norm": (("token_embd_norm",),),
        "qkv": (("attn_qkv",), ("attn_q", "attn_k", "attn_v")),
        "o": (("attn_output",),),
        "attention_norm": (("attn_output_norm",),),
        "up": (("ffn_gate", "ffn_up"), ("ffn_up",)),
        "down": (("ffn_down",),),
        "mlp_norm": (("layer_output_norm",),),
    },
)
