"""Granite 3 and 4 (dense): Llama with multipliers on embeddings, attention, residual additions and logits."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {
        "attention": fields.attention_shape(fields.number("attention_scale")),
        "qkv_bias": has_bias,
        "output_bias": has_bias,
        "mlp_bias": fields.flag("mlp_bias"),
    }
    return dense_model(
        fields,
        layer,
        embedding_scale=fields.number("embedding_scale", 1.0),
        residual_scale=fields.number("residual_scale", 1.0),
        logits_scale=1 / fields.number("logits_divisor", 1.0),
    )


FAMILY = Family(gguf_names=("granite",), hf_names=("GraniteForCausalLM",), describe=describe, gguf_adjacent_pairs=True)
