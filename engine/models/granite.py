"""Granite 3 and 4 (dense): Llama with multipliers on embeddings, attention, residual additions and logits.

Granite SWA has windows in most layers, sinks in all, and bases of rotations by layer.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from engine.layers.rotary import Rotation
from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model, with_windows
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
        scales_vectors=True,
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


def describe_with_sinks(fields: Fields) -> ModelConfig:
    """Describe Granite SWA. A layer whose base is 0 sees no positions."""
    config = describe(fields)
    windows = fields.windows(config.num_layers)
    if fields.get("layer_types") is None:
        windows = tuple(window if number % INTERVAL else 0 for number, window in enumerate(windows))
    config = with_windows(config, windows)
    (rotation,) = config.rotations
    bases = fields.get("layer_rope_theta")
    bases = [rotation.theta] * config.num_layers if bases is None else bases
    if not isinstance(bases, list) or len(bases) != config.num_layers or not all(map(_is_base, bases)):
        raise fields.wrong("layer_rope_theta", f"{config.num_layers} numbers from 0", bases)
    distinct = sorted(set(bases))
    rotations = [replace(rotation, theta=base) if base else Rotation(1.0, 0, rotation.head_size) for base in distinct]
    layers = [
        replace(layer, attention=replace(layer.attention, has_sinks=True), rotation=distinct.index(base))
        for layer, base in zip(config.layers, bases, strict=True)
    ]
    return replace(config, layers=tuple(layers), rotations=tuple(rotations))


def _is_base(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


INTERVAL = 4
"""Every fourth layer of Granite SWA, from the first on, sees everything, where a file does not say which."""
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
WITH_SINKS = Family(
    "Granite SWA",
    gguf_names=(),
    hf_names=("GraniteSWAForCausalLM",),
    describe=describe_with_sinks,
    hf_defaults={
        "attention_multiplier": 1.0,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "sliding_window": 128,
        "tie_word_embeddings": True,
    },
)
