"""Qwen 2 and 2.5, with biases on queries, keys and values, and Qwen 3, with norms on queries and keys instead."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config import ModelConfig, QkNorm
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe_qwen2(fields: Fields) -> ModelConfig:
    return _with_windows(fields, dense_model(fields, {"qkv_bias": True}))


def describe_qwen3(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qk_norm": QkNorm.HEAD, "qkv_bias": has_bias, "output_bias": has_bias}
    config = _with_windows(fields, dense_model(fields, layer))
    return _with_turns(config) if fields.get("model_type") == VL else config


def _with_turns(config: ModelConfig) -> ModelConfig:
    """Let the pairs of time, row and column lie in turns, whatever the file says of it."""
    (rotation,) = config.rotations
    return replace(config, rotations=(replace(rotation, sections=rotation.sections or SECTIONS, is_interleaved=True),))


def _with_windows(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Give windows to the layers from `max_window_layers` on, if the file turns them on."""
    if not fields.flag("use_sliding_window"):
        return config
    windows = fields.windows(fields.num_layers)
    if fields.get("layer_types") is None:
        first = fields.size("max_window_layers") if fields.get("max_window_layers") else 0
        windows = tuple(window if number >= first else 0 for number, window in enumerate(windows))
    return with_windows(config, windows)


VL, SECTIONS = "qwen3_vl_text", (24, 20, 20)
"""The `model_type` of the text model of Qwen3-VL, and its pairs of time, row and column, if the file has none."""
DEFAULTS = {"max_window_layers": 28}
QWEN2 = Family(
    "Qwen 2 and 2.5",
    gguf_names=("qwen2",),
    hf_names=("Qwen2ForCausalLM",),
    describe=describe_qwen2,
    hf_defaults=DEFAULTS,
)
QWEN3 = Family(
    "Qwen 3 (dense)",
    gguf_names=("qwen3",),
    hf_names=("Qwen3ForCausalLM",),
    describe=describe_qwen3,
    hf_defaults=DEFAULTS | {"head_dim": 128},
)
