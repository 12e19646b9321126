"""Towers as CLIP and SigLIP have them: LLaVA, SmolVLM and Idefics 3, Gemma 3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.models.projectors.described import MOST_SIDE_TILES, Described, Form, Names, ProjectorFields, Source, plain

SCALE_OF_GEMMA, SCALE_OF_IDEFICS = 4, 2
"""Patches of a side that become one vector, where the file does not say."""
TILES_OF_IDEFICS = 4
"""Of the longer side of an image, where the file does not say: 2048 pixels in tiles of 512."""
LLAVA_TOKEN = "<image>"
MOST_SHAPES = 64
"""Of tiles."""
NEWLINES = ("v.image_newline", "model.image_newline")


def tower_names(prefix: str, *, is_swapped: bool) -> Names:
    """Return the names of a tower. `is_swapped`: the file calls its feed-forward the other way round."""
    up, down = ("ffn_down", "ffn_up") if is_swapped else ("ffn_up", "ffn_down")
    block, ours = "v.blk.{}", f"{prefix}encoder.layers.{{}}"
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out",
        "layer_norm1": "ln1",
        "layer_norm2": "ln2",
        "mlp.fc1": up,
        "mlp.fc2": down,
    }
    return {
        f"{prefix}embeddings.class_embedding": plain("v.class_embd"),
        f"{prefix}embeddings.patch_embedding": plain("v.patch_embd"),
        f"{prefix}embeddings.position_embedding": plain("v.position_embd"),
        f"{prefix}pre_layrnorm": plain("v.pre_ln"),
        f"{prefix}post_layernorm": plain("v.post_ln"),
        **{f"{ours}.{name}": plain(f"{block}.{own}") for name, own in parts.items()},
    }


def describe_llava(fields: ProjectorFields) -> Described:
    """Describe LLaVA 1.5, or 1.6 if the file lists shapes of tiles.

    Converters leave out the layers behind the one whose states are projected.
    """
    vision, size = fields.vision, fields.image_size
    layers = vision.get("feature_layer")
    if layers not in (None, [fields.num_layers]):
        raise vision.wrong("feature_layer", f"[{fields.num_layers}], the last layer of the file", layers)
    tower = {
        "model_type": "clip_vision_model",
        **fields.tower,
        "layer_norm_eps": vision.number("layer_norm_eps"),
        "hidden_act": fields.activation("gelu"),
    }
    config: dict[str, Any] = {
        "model_type": "llava",
        "vision_config": tower,
        "text_config": fields.text_config("llama"),
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
    }
    options = {
        "size": {"shortest_edge": size},
        "crop_size": {"height": size, "width": size},
        "do_center_crop": True,
        **fields.normalization,
    }
    names = {
        **tower_names("model.vision_tower.", is_swapped=fields.is_swapped),
        "model.multi_modal_projector.linear_1": plain("mm.0"),
        "model.multi_modal_projector.linear_2": plain("mm.2"),
        "model.image_newline": tuple(Source((name,)) for name in NEWLINES),
    }
    described = Described(
        config,
        "CLIPImageProcessor",
        options,
        names,
        image_token=LLAVA_TOKEN,
        placeholder=LLAVA_TOKEN,
        unused=(*NEWLINES, "v.post_ln."),
        uncomputed=("model.vision_tower.post_layernorm.",),
        has_own_token=False,
    )
    pinpoints = vision.get("image_grid_pinpoints")
    return described if pinpoints is None else _with_tiles(fields, described, pinpoints)


def _with_tiles(fields: ProjectorFields, described: Described, pinpoints: Any) -> Described:
    """Return LLaVA 1.6: images are cut into tiles in one of the shapes (height and width in turns)."""
    vision = fields.vision
    merge = vision.get("mm_patch_merge_type")
    if merge not in (None, "spatial_unpad"):
        raise vision.wrong("mm_patch_merge_type", "spatial_unpad", merge)
    most = MOST_SIDE_TILES * fields.image_size
    is_list = isinstance(pinpoints, list) and 2 <= len(pinpoints) <= 2 * MOST_SHAPES and len(pinpoints) % 2 == 0
    if not is_list or not all(type(side) is int and 0 < side <= most for side in pinpoints):
        expected = f"1 to {MOST_SHAPES} pairs of integers from 1 to {most}"
        raise vision.wrong("image_grid_pinpoints", expected, pinpoints)
    grid = [pinpoints[place : place + 2] for place in range(0, len(pinpoints), 2)]
    return replace(
        described,
        config={**described.config, "model_type": "llava_next", "image_grid_pinpoints": grid},
        image_processor="LlavaNextImageProcessor",
        image_options={**described.image_options, "image_grid_pinpoints": grid},
    )


def describe_idefics3(fields: ProjectorFields) -> Described:
    vision, size = fields.vision, fields.image_size
    scale = vision.size("projector.scale_factor", SCALE_OF_IDEFICS)
    fields.side(scale)
    config = {
        "model_type": "idefics3",
        "vision_config": {
            **fields.tower,
            "layer_norm_eps": vision.number("layer_norm_eps"),
            "hidden_act": fields.activation("gelu_pytorch_tanh"),
        },
        "text_config": fields.text_config("llama"),
        "scale_factor": scale,
    }
    longest = vision.size("preproc_image_size", TILES_OF_IDEFICS * size, most=MOST_SIDE_TILES * size)
    options = {
        "size": {"longest_edge": longest},
        "max_image_size": {"longest_edge": size},
        **fields.normalization,
    }
    names = {
        **tower_names("model.vision_model.", is_swapped=fields.is_swapped),
        "model.connector.modality_projection.proj": plain("mm.model.fc"),
    }
    markers = ("<fake_token_around_image>", "<global-img>", "<row_1_col_1>")
    return Described(config, "Idefics3ImageProcessor", options, names, "<image>", "<image>", markers)


def describe_gemma3(fields: ProjectorFields) -> Described:
    vision, size = fields.vision, fields.image_size
    side = fields.side(vision.size("projector.scale_factor", SCALE_OF_GEMMA))
    config = {
        "model_type": "gemma3",
        "vision_config": {
            "model_type": "siglip_vision_model",
            **fields.tower,
            "layer_norm_eps": vision.number("layer_norm_eps"),
            "hidden_act": fields.activation("gelu_pytorch_tanh"),
            "vision_use_head": False,
        },
        "text_config": fields.text_config("gemma3_text", head_dim=8),
        "mm_tokens_per_image": side**2,
    }
    options = {"size": {"height": size, "width": size}, **fields.normalization}
    ours = "model.multi_modal_projector.mm_"
    names = {
        **tower_names("model.vision_tower.", is_swapped=fields.is_swapped),
        f"{ours}input_projection_weight": plain("mm.input_projection.weight"),
        f"{ours}soft_emb_norm": (Source(("mm.soft_emb_norm",), Form.LESS_ONE),),
    }
    begin, end = "<start_of_image>", "<end_of_image>"
    return Described(
        config,
        "Gemma3ImageProcessor",
        options,
        names,
        image_token="<image_soft_token>",
        placeholder=begin,
        markers=(begin, end),
        marks={"boi_token": begin, "eoi_token": end},
        has_own_token=False,
    )
