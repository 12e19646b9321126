"""The tensors of files by our names, which models/decoder.py lists: names of GGUF and Hugging Face files, and which
rows of a stacked tensor are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from engine.layers.rotary import adjacent_pairs
from engine.models.config import LayerConfig, ModelConfig, QkNorm
from engine.models.decoder import decoder_tensors
from engine.models.family import Family

GGUF_TENSORS = {
    "embedding": "token_embd.weight",
    "output": "output.weight",
    "final_norm": "output_norm.weight",
    "final_norm_bias": "output_norm.bias",
    "frequency_factors": "rope_freqs.weight",
    "short_factors": "rope_factors_short.weight",
    "long_factors": "rope_factors_long.weight",
    "input_embedding": "per_layer_token_embd.weight",
    "input_projection": "per_layer_model_proj.weight",
    "input_projection_norm": "per_layer_proj_norm.weight",
    "input_gate": "inp_gate.weight",
    "input_up": "proj.weight",
    "input_norm": "post_norm.weight",
    "scale": "layer_output_scale.weight",
    "attention_norm": "attn_norm.weight",
    "attention_norm_bias": "attn_norm.bias",
    "attention_output_norm": "post_attention_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "sinks": "attn_sinks.weight",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "mlp_norm_bias": "ffn_norm.bias",
    "mlp_output_norm": "post_ffw_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "o_bias": "attn_output.bias",
    "gate_bias": "ffn_gate.bias",
    "up_bias": "ffn_up.bias",
    "down_bias": "ffn_down.bias",
}
HF_TENSORS = {
    "embedding": "model.embed_tokens.weight",
    "output": "lm_head.weight",
    "final_norm": "model.norm.weight",
    "final_norm_bias": "model.norm.bias",
    "input_embedding": "model.embed_tokens_per_layer.weight",
    "input_projection": "model.per_layer_model_projection.weight",
    "input_projection_norm": "model.per_layer_projection_norm.weight",
    "input_gate": "per_layer_input_gate.weight",
    "input_up": "per_layer_projection.weight",
    "input_norm": "post_per_layer_input_norm.weight",
    "scale": "layer_scalar",
    "attention_norm": "input_layernorm.weight",
    "attention_norm_bias": "input_layernorm.bias",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "sinks": "self_attn.sinks",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "mlp_norm_bias": "post_attention_layernorm.bias",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
    "gate_bias": "mlp.gate_proj.bias",
    "up_bias": "mlp.up_proj.bias",
    "down_bias": "mlp.down_proj.bias",
}


PREFIXES = {
    "model.": ("model.", "language_model.model.", "model.language_model.", "model.text_model."),
    "lm_head.": ("lm_head.", "language_model.lm_head."),
}
"""Beginnings of the names in folders, as they are, or where the text model is a part of a larger one."""
OTHER_PARTS = {
    "vision_config": (
        "vision_tower.",
        "vision_model.",
        "multi_modal_projector.",
        "connector.",
        "image_newline",
        "visual.",
        "embed_vision.",
        "embed_tokens_extend.image_embed.",
    ),
    "audio_config": (
        "audio_tower.",
        "audio_model.",
        "encoder.",
        "multi_modal_projector.",
        "embed_audio.",
        "embed_tokens_extend.audio_embed.",
    ),
    "embd_layer": ("embed_tokens_extend.",),
}
"""The object of a config.json that describes a part which is not served -> beginnings of the names of its tensors,
behind `model.` too."""


class TensorSource(NamedTuple):
    """A tensor of ours in a file: rows `first` and following of the tensor `name`, which has `num_rows` rows."""

    name: str
    first: int
    num_rows: int


def tensor_sources(config: ModelConfig, family: Family, *, is_gguf: bool) -> dict[str, TensorSource]:
    """Return where the file has each of our tensors."""
    common, own = (GGUF_TENSORS, family.gguf_tensors) if is_gguf else (HF_TENSORS, family.hf_tensors)
    layers = "blk" if is_gguf else "model.layers"
    num_rows: dict[str, int] = {}
    found: dict[str, TensorSource] = {}
    for name, shape in decoder_tensors(config):
        *place, kind = name.split(".")
        if place and kind in ("v", "v_bias") and config.layers[int(place[1])].values_are_keys:
            found[name] = found[f"{name.removesuffix(kind)}{kind.replace('v', 'k')}"]
            continue
        file_name = own.get(kind) or common.get(kind)
        if file_name is None:
            continue
        if place:
            file_name = f"{layers}.{place[1]}.{file_name}"
        first = num_rows.get(file_name, 0)
        num_rows[file_name] = first + shape[0]
        found[name] = TensorSource(file_name, first, 0)
    return {name: source._replace(num_rows=num_rows[source.name]) for name, source in found.items()}


def shared_keys(config: ModelConfig, family: Family, *, is_gguf: bool) -> set[str]:
    """Return the tensors of keys and values that a file may hold for layers that read those of others."""
    common, own = (GGUF_TENSORS, family.gguf_tensors) if is_gguf else (HF_TENSORS, family.hf_tensors)
    layers = "blk" if is_gguf else "model.layers"
    numbers = (number for number, layer in enumerate(config.layers) if not layer.attention.has_keys)
    names = [own.get(kind) or common[kind] for kind in ("k", "v", "k_norm", "k_bias", "v_bias")]
    return {f"{layers}.{number}.{name}" for number in numbers for name in names}


def pair_order(name: str, config: ModelConfig) -> torch.Tensor | None:
    """Return the row order that makes rotated pairs adjacent, for a tensor of queries or keys stored as two halves."""
    *place, kind = name.split(".")
    if not place or kind not in ("q", "q_bias", "q_norm", "k", "k_bias", "k_norm"):
        return None
    layer = config.layers[int(place[1])]
    rotation = config.rotations[layer.rotation]
    return adjacent_pairs(_num_heads(kind, layer), rotation.head_size, rotation.size)


def _num_heads(kind: str, layer: LayerConfig) -> int:
    if kind.endswith("norm") and layer.qk_norm is QkNorm.HEAD:
        return 1
    return layer.attention.num_heads if kind.startswith("q") else layer.attention.num_kv_heads


def name_in_folder(name: str, names: set[str]) -> str:
    """Return the name among `names` of a tensor that a folder of the text model alone would call `name`."""
    for common, spellings in PREFIXES.items():
        if name.startswith(common):
            spellings = (*spellings, "") if common == "model." else spellings  # saved without its output it has no part
            found = (spelling + name.removeprefix(common) for spelling in spellings)
            return next((spelled for spelled in found if spelled in names), name)
    return name


def name_in_text_model(name: str) -> str:
    """Return what a folder of the text model alone would call a tensor of a larger one."""
    for common, spellings in PREFIXES.items():
        for spelling in spellings[1:]:
            if name.startswith(spelling):
                return common + name.removeprefix(spelling)
    return name


def is_ignorable(file_name: str) -> bool:
    """Return True for tensors that a file may hold unused: a tied output, tables and constants that are computed."""
    return file_name.endswith(("lm_head.weight", "rotary_emb.inv_freq", ".masked_bias"))


def is_other_part(file_name: str, values: Mapping[str, object]) -> bool:
    """Return True for tensors of parts that are not served, such as a vision tower, if the description has them."""
    name = file_name.removeprefix("model.")
    return any(isinstance(values.get(part), Mapping) and name.startswith(OTHER_PARTS[part]) for part in OTHER_PARTS)
