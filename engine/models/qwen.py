"""Qwen 2 and 2.5, with biases on queries, keys and values, and Qwen 3, with norms on queries and keys instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.layers.rotary import NUM_AXES
from engine.models.config import ModelConfig, QkNorm
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe_qwen2(fields: Fields) -> ModelConfig:
    return _with_sections(fields, _with_windows(fields, dense_model(fields, {"qkv_bias": True})))


def describe_qwen3(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qk_norm": QkNorm.HEAD, "qkv_bias": has_bias, "output_bias": has_bias}
    return _with_sections(fields, _with_windows(fields, dense_model(fields, layer)))


def _with_sections(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Give the rotations of a text model of Qwen-VL their pairs of time, row and column, in any rule of stretching.

    Those of Qwen3-VL lie in turns, whatever the file says of it.
    """
    if fields.is_gguf:
        return _with_gguf_sections(fields, config)
    kind = fields.get("model_type")
    if kind not in SEEING:
        return config
    values = fields.get("rope_parameters") or fields.get("rope_scaling")
    rope = fields.with_values(values if isinstance(values, dict) else {})
    sections = rope.integers("mrope_section", NUM_AXES) or (SECTIONS if kind == QWEN3_VL else ())
    if not sections:
        raise rope.wrong("mrope_section", f"a list of {NUM_AXES} positive integers", None)
    changes: dict[str, Any] = {"sections": sections, "is_interleaved": kind == QWEN3_VL}
    return replace(config, rotations=tuple(replace(rotation, **changes) for rotation in config.rotations))


def _with_gguf_sections(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Do as `_with_sections`. Files fill the list up with zeros."""
    if fields.architecture not in GGUF_SEEING:
        return config
    values = fields.get(GGUF_SECTIONS)
    pairs = [value for value in values if value != 0] if isinstance(values, list) else []
    if len(pairs) != NUM_AXES or not all(type(value) is int and value > 0 for value in pairs):
        raise fields.wrong(GGUF_SECTIONS, f"{NUM_AXES} positive integers and zeros", values)
    changes: dict[str, Any] = {"sections": tuple(pairs), "is_interleaved": fields.architecture == "qwen3vl"}
    return replace(config, rotations=tuple(replace(rotation, **changes) for rotation in config.rotations))


def _with_windows(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Give windows to the layers from `max_window_layers` on, if the file turns them on."""
    if not fields.flag("use_sliding_window"):
        return config
    windows = fields.windows(fields.num_layers)
    if fields.get("layer_types") is None:
        first = fields.size("max_window_layers") if fields.get("max_window_layers") else 0
        windows = tuple(window if number >= first else 0 for number, window in enumerate(windows))
    return with_windows(config, windows)


QWEN3_VL, SECTIONS = "qwen3_vl_text", (24, 20, 20)
"""The `model_type` of the text model of Qwen3-VL, and its pairs of time, row and column, if the file has none."""
SEEING = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", QWEN3_VL)
"""By `model_type`, of folders of one object too."""
GGUF_SEEING, GGUF_SECTIONS = ("qwen2vl", "qwen3vl"), "rope.dimension_sections"
"""`general.architecture` of text models of Qwen-VL in GGUF files, and the key of their pairs."""
DEFAULTS = {"max_window_layers": 28}
QWEN2 = Family(
    "Qwen 2 and 2.5",
    gguf_names=("qwen2", "qwen2vl"),
    hf_names=("Qwen2ForCausalLM",),
    describe=describe_qwen2,
    hf_defaults=DEFAULTS,
)
QWEN3 = Family(
    "Qwen 3 (dense)",
    gguf_names=("qwen3", "qwen3vl"),
    hf_names=("Qwen3ForCausalLM",),
    describe=describe_qwen3,
    hf_defaults=DEFAULTS | {"head_dim": 128},
)
