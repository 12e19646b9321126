"""The tower of InternVL."""

from __future__ import annotations

from engine.models.projectors.described import MOST_TILES, Described, ProjectorFields, plain

SCALE = 2
"""Patches of a side that become one vector, where the file does not say."""
LEAST_TILES, DEFAULT_TILES = 1, 12
"""The fewest and the most of an image, where the file does not say."""


def describe_internvl(fields: ProjectorFields) -> Described:
    vision, size = fields.vision, fields.image_size
    scale, patch = vision.size("projector.scale_factor", SCALE), vision.size("patch_size")
    side = fields.side(scale)
    least = vision.size("preproc_min_tiles", LEAST_TILES)
    most = vision.size("preproc_max_tiles", DEFAULT_TILES, most=MOST_TILES)
    if least > most:
        raise vision.wrong("preproc_min_tiles", f"at most preproc_max_tiles, {most}", least)
    tower = {
        **fields.tower,
        "image_size": [size, size],
        "patch_size": [patch, patch],
        "layer_norm_eps": vision.number("layer_norm_eps"),
        "hidden_act": fields.activation("gelu"),
        "attention_bias": fields.has("v.blk.0.attn_q.bias"),
        "use_qk_norm": fields.has("v.blk.0.attn_q_norm.weight"),
        "norm_type": "layer_norm" if fields.has("v.blk.0.ln1.bias") else "rms_norm",
        "use_absolute_position_embeddings": True,
        "use_mean_pooling": True,
    }
    config = {
        "model_type": "internvl",
        "vision_config": tower,
        "text_config": fields.text_config("qwen2"),
        "image_seq_length": side**2,
        "downsample_ratio": 1 / scale,
    }
    options = {
        "size": {"height": size, "width": size},
        "crop_to_patches": True,
        "min_patches": least,
        "max_patches": most,
        **fields.normalization,
    }
    ours, block = "model.vision_tower.encoder.layer.{}", "v.blk.{}"
    parts = {
        "attention.q_proj": "attn_q",
        "attention.k_proj": "attn_k",
        "attention.v_proj": "attn_v",
        "attention.q_norm": "attn_q_norm",
        "attention.k_norm": "attn_k_norm",
        "attention.projection_layer": "attn_out",
        "layernorm_before": "ln1",
        "layernorm_after": "ln2",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
    }
    embeddings, projector = "model.vision_tower.embeddings.", "model.multi_modal_projector."
    names = {
        f"{embeddings}cls_token": plain("v.class_embd"),
        f"{embeddings}position_embeddings": plain("v.position_embd.weight"),
        f"{embeddings}patch_embeddings.projection": plain("v.patch_embd"),
        f"{ours}.lambda_1": plain(f"{block}.ls1.weight"),
        f"{ours}.lambda_2": plain(f"{block}.ls2.weight"),
        **{f"{ours}.{name}": plain(f"{block}.{own}") for name, own in parts.items()},
        f"{projector}layer_norm": plain("mm.model.mlp.0"),
        f"{projector}linear_1": plain("mm.model.mlp.1"),
        f"{projector}linear_2": plain("mm.model.mlp.3"),
    }
    token = "<IMG_CONTEXT>"
    return Described(config, "GotOcr2ImageProcessor", options, names, token, token, ("<img>", "</img>"))
