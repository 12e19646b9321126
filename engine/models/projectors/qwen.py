"""The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from __future__ import annotations

from math import isqrt
from typing import Any

from engine.models.projectors.described import Described, Form, Names, ProjectorFields, Source, plain

MERGE, FRAMES = 2, 2
"""Patches of a side that become one vector, and frames that a patch has."""
WINDOW_PATCHES = 8
"""Of a side of a window of Qwen2.5-VL, where the file does not say: 112 pixels in patches of 14."""
LEAST_PIXELS, MOST_PIXELS = {True: 65_536, False: 3_136}, {True: 16_777_216, False: 12_845_056}
"""Of an image of Qwen3-VL, and of the older ones, as their makers have it."""
PAD, START, END, VIDEO = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"
BLOCK, OURS = "v.blk.{}", "model.visual.blocks.{}"


def _names(parts: dict[str, str], norm: str, linear: tuple[str, str]) -> Names:
    """Return the names. `parts`: of a layer; `norm`, `linear`: of the projector in transformers."""
    thirds = tuple(f"{BLOCK}.attn_{one}" for one in "qkv")
    merger = "model.visual.merger."
    return {
        "model.visual.patch_embed.proj.weight": (
            Source(("v.patch_embd.weight", "v.patch_embd.weight.1"), Form.FRAMES),
        ),
        "model.visual.patch_embed.proj": plain("v.patch_embd"),
        f"{OURS}.norm1": plain(f"{BLOCK}.ln1"),
        f"{OURS}.norm2": plain(f"{BLOCK}.ln2"),
        f"{OURS}.attn.qkv": (*plain(f"{BLOCK}.attn_qkv"), Source(thirds, Form.ROWS)),
        f"{OURS}.attn.proj": plain(f"{BLOCK}.attn_out"),
        **{f"{OURS}.mlp.{name}": plain(f"{BLOCK}.{own}") for name, own in parts.items()},
        f"{merger}{norm}": plain("v.post_ln"),
        f"{merger}{linear[0]}": plain("mm.0"),
        f"{merger}{linear[1]}": plain("mm.2"),
    }


def _sizes(fields: ProjectorFields) -> dict[str, Any]:
    vision = fields.vision
    fields.head_size(4)  # by row and by column, in pairs
    return {
        "depth": fields.num_layers,
        "num_heads": vision.size("num_heads"),
        "patch_size": vision.size("patch_size"),
        "spatial_merge_size": vision.size("spatial_merge_size", MERGE),
        "temporal_patch_size": FRAMES,
    }


def _described(fields: ProjectorFields, tower: dict[str, Any], names: Names, model_type: str) -> Described:
    vision, is_new = fields.vision, model_type == "qwen3_vl"
    least = vision.size("image_min_pixels", LEAST_PIXELS[is_new])
    most = vision.size("image_max_pixels", MOST_PIXELS[is_new], most=1 << 30)
    if least > most:
        raise vision.wrong("image_min_pixels", f"at most image_max_pixels, {most}", least)
    options = {
        "size": {"shortest_edge": least, "longest_edge": most},
        "patch_size": tower["patch_size"],
        "temporal_patch_size": FRAMES,
        "merge_size": tower["spatial_merge_size"],
        **fields.normalization,
    }
    config = {
        "model_type": model_type,
        "vision_config": tower,
        "text_config": fields.text_config(f"{model_type}_text", head_dim=8, rope_parameters=ROPE),
    }
    return Described(config, "Qwen2VLImageProcessor", options, names, PAD, PAD, (START, END, VIDEO))


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
"""Of a text model without layers."""


def describe_qwen2(fields: ProjectorFields) -> Described:
    """Describe Qwen2-VL. Its file has another number for the width of the feed-forward."""
    width, inner = fields.vision.size("hidden_size"), fields.inner_size
    if inner % width:
        raise fields.wrong_shape("v.blk.0.ffn_up.weight", f"a multiple of {width} rows", inner)
    tower = {
        **_sizes(fields),
        "embed_dim": width,
        "hidden_size": fields.projector.width,
        "mlp_ratio": inner // width,
        "hidden_act": fields.activation("gelu"),
    }
    up, down = ("ffn_down", "ffn_up") if fields.is_swapped else ("ffn_up", "ffn_down")
    names = _names({"fc1": up, "fc2": down}, "ln_q", ("mlp.0", "mlp.2"))
    return _described(fields, tower, names, "qwen2_vl")


def describe_qwen2_5(fields: ProjectorFields) -> Described:
    vision = fields.vision
    pattern = vision.size("n_wa_pattern")
    window = vision.size("window_size", WINDOW_PATCHES * vision.size("patch_size"))
    tower = {
        **_sizes(fields),
        "hidden_size": vision.size("hidden_size"),
        "intermediate_size": fields.inner_size,
        "out_hidden_size": fields.projector.width,
        "window_size": window,
        "fullatt_block_indexes": [n for n in range(fields.num_layers) if (n + 1) % pattern == 0],
        "tokens_per_second": 2,
        "hidden_act": fields.activation("gelu"),
    }
    parts = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    return _described(fields, tower, _names(parts, "ln_q", ("mlp.0", "mlp.2")), "qwen2_5_vl")


def describe_qwen3(fields: ProjectorFields) -> Described:
    vision = fields.vision
    marks = vision.get("is_deepstack_layers")
    if marks is None:
        marks = [False] * fields.num_layers
    if not isinstance(marks, list) or len(marks) != fields.num_layers or not all(type(one) is bool for one in marks):
        raise vision.wrong("is_deepstack_layers", f"{fields.num_layers} times true or false", marks)
    deep = [number for number, is_deep in enumerate(marks) if is_deep]
    rows = fields.shape("v.position_embd.weight")[0]
    if isqrt(rows) ** 2 != rows:
        raise fields.wrong_shape("v.position_embd.weight", "a square of rows", rows)
    tower = {
        **_sizes(fields),
        "hidden_size": vision.size("hidden_size"),
        "intermediate_size": fields.inner_size,
        "out_hidden_size": fields.projector.width,
        "num_position_embeddings": rows,
        "deepstack_visual_indexes": deep,
        "hidden_act": fields.activation("gelu_pytorch_tanh"),
    }
    parts = {"linear_fc1": "ffn_up", "linear_fc2": "ffn_down"}
    names = {
        **_names(parts, "norm", ("linear_fc1", "linear_fc2")),
        "model.visual.pos_embed": plain("v.position_embd"),
    }
    for place, number in enumerate(deep):
        for name, own in (("norm", "norm"), ("linear_fc1", "fc1"), ("linear_fc2", "fc2")):
            names[f"model.visual.deepstack_merger_list.{place}.{name}"] = plain(f"v.deepstack.{number}.{own}")
    return _described(fields, tower, names, "qwen3_vl")
