"""SmolLM 3: every fourth layer sees no positions."""

from __future__ import annotations

from dataclasses import replace

from engine.layers.rotary import Rotation
from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model
from engine.models.fields import Fields

INTERVAL = 4


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qkv_bias": has_bias, "output_bias": has_bias, "mlp_bias": fields.flag("mlp_bias")}
    fields.expect("use_sliding_window", False)
    config = dense_model(fields, layer)
    head_size = config.attention_shape.head_size
    interval = fields.size("no_rope_layer_interval", INTERVAL)
    rotated = fields.get("no_rope_layers") or [(number + 1) % interval for number in range(config.num_layers)]
    if not isinstance(rotated, list) or len(rotated) != config.num_layers:
        raise fields.wrong("no_rope_layers", f"a list of {config.num_layers} numbers", rotated)
    return replace(
        config,
        layers=tuple(
            replace(layer, rotation=0 if is_rotated else 1)
            for layer, is_rotated in zip(config.layers, rotated, strict=True)
        ),
        rotations=(*config.rotations, Rotation(1.0, 0, head_size)),
    )


FAMILY = Family(
    "SmolLM 3",
    gguf_names=("smollm3",),
    hf_names=("SmolLM3ForCausalLM",),
    describe=describe,
    hf_defaults={"rope_theta": 2e6, "tie_word_embeddings": True},
    gguf_adjacent_pairs=True,
)
