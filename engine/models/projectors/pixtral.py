"""The tower of Pixtral and of Mistral Small 3."""

from __future__ import annotations

from typing import Any

from engine.models.projectors.described import Described, Form, ProjectorFields, Source, plain

TOKEN, BREAK, END = "[IMG]", "[IMG_BREAK]", "[IMG_END]"


def describe_pixtral(fields: ProjectorFields) -> Described:
    """Describe Pixtral, or Mistral Small 3 if the file has a merger of patches."""
    vision, size, patch = fields.vision, fields.image_size, fields.vision.size("patch_size")
    merge = vision.size("spatial_merge_size", 1)
    tower = {
        "model_type": "pixtral",
        **fields.tower,
        "head_dim": fields.head_size(2),
        "hidden_act": fields.activation("gelu"),
        "rope_parameters": {"rope_type": "axial", "rope_theta": vision.number("rope.freq_base", 10000.0)},
    }
    config: dict[str, Any] = {
        "vision_config": tower,
        "vision_feature_layer": -1,
        "multimodal_projector_bias": fields.has("mm.1.bias"),
    }
    if fields.has("mm.patch_merger.weight"):
        eps = fields.text.number("norm_eps")
        text = fields.text_config("mistral", head_dim=8, rms_norm_eps=eps)
        config |= {"model_type": "mistral3", "spatial_merge_size": merge, "text_config": text}
    else:
        text = fields.text_config("mistral", head_dim=8)
        config |= {"model_type": "llava", "vision_feature_select_strategy": "full", "text_config": text}
    side = patch * merge
    options = {
        "size": {"longest_edge": size},
        "patch_size": {"height": side, "width": side},
        **fields.normalization,
    }
    ours, block = "model.vision_tower.transformer.layers.{}", "v.blk.{}"
    parts = {
        "attention.v_proj": "attn_v",
        "attention.o_proj": "attn_out",
        "attention_norm": "ln1",
        "ffn_norm": "ln2",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
    }
    projector = "model.multi_modal_projector."
    names = {
        "model.vision_tower.patch_conv": plain("v.patch_embd"),
        "model.vision_tower.ln_pre": plain("v.pre_ln"),
        **{f"{ours}.attention.{one}_proj": (Source((f"{block}.attn_{one}",), Form.HALVES),) for one in "qk"},
        **{f"{ours}.{name}": plain(f"{block}.{own}") for name, own in parts.items()},
        f"{projector}norm": plain("mm.input_norm"),
        f"{projector}patch_merger.merging_layer": plain("mm.patch_merger"),
        f"{projector}linear_1": plain("mm.1"),
        f"{projector}linear_2": plain("mm.2"),
    }
    unused = ("v.token_embd.img_break",)
    return Described(config, "PixtralImageProcessor", options, names, TOKEN, TOKEN, (BREAK, END), unused)
