"""Granite 3 and 4 (dense): Llama with multipliers on embeddings, attention, residual additions and logits."""

from __future__ import annotations

from dataclasses import replace

from engine.layers.rotary import Rotation
from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    fields.expect("rope.scaling.finetuned", True)  # llama.cpp: False in files of models that see no positions
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


def describe_hybrid(fields: Fields) -> ModelConfig:
    """Describe the dense models of Granite 4, whose architecture also has layers with states and with experts."""
    fields.expect("num_local_experts", 0)
    kinds = fields.get("layer_types")
    if not isinstance(kinds, list) or not all(kind in ("attention", "full_attention") for kind in kinds):
        raise fields.wrong("layer_types", "attention in every layer, as layers with states are not served", kinds)
    fields.expect("position_embedding_type", "rope", "nope")
    config = describe(fields)
    if fields.get("position_embedding_type") != "rope":
        config = replace(config, rotations=(Rotation(1.0, 0, config.attention_shape.head_size),))
    inner = fields.size("shared_intermediate_size")
    return replace(config, layers=tuple(replace(layer, intermediate_size=inner) for layer in config.layers))


UP = "shared_mlp.input_linear.weight"
HYBRID = Family(
    "Granite 4 (dense)",
    gguf_names=(),
    hf_names=("GraniteMoeHybridForCausalLM",),
    describe=describe_hybrid,
    hf_tensors={"gate": UP, "up": UP, "down": "shared_mlp.output_linear.weight"},
    hf_defaults={"attention_multiplier": 1.0, "num_local_experts": 8, "intermediate_size": 1},
)
FAMILY = Family(
    "Granite 3 and 4 (dense)",
    gguf_names=("granite",),
    hf_names=("GraniteForCausalLM",),
    describe=describe,
    gguf_adjacent_pairs=True,
)
