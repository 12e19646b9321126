"""EXAONE 4: norms after attention and feed-forward, and norms of queries and keys.

The large model has windows in three of four layers; its other layers see no positions.
"""

from __future__ import annotations

from dataclasses import replace

from engine.layers.rotary import Rotation
from engine.models.config import ModelConfig, QkNorm
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    layer = {"qk_norm": QkNorm.HEAD, "has_input_norms": False, "has_output_norms": True}
    config = dense_model(fields, layer)
    if fields.get("sliding_window") is None:
        return config
    config = replace(config, rotations=(*config.rotations, Rotation(1.0, 0, config.attention_shape.head_size)))
    windows = fields.windows(fields.num_layers, pattern=4)
    layers = tuple(
        replace(layer, rotation=0 if window else 1) for layer, window in zip(config.layers, windows, strict=True)
    )
    return with_windows(replace(config, layers=layers), windows)


FAMILY = Family(
    "EXAONE 4",
    gguf_names=("exaone4",),
    hf_names=("Exaone4ForCausalLM",),
    describe=describe,
    hf_tensors={
        "attention_output_norm": "post_attention_layernorm.weight",
        "mlp_output_norm": "post_feedforward_layernorm.weight",
    },
    hf_defaults={"sliding_window": 4096},
)
