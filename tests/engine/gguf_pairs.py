"""Folders of models that see, written as llama.cpp's converters write them: a text model and its projector in GGUF."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import torch

from engine.tokenizers.gguf_vocabulary import CONTROL
from tests.engine.loading.gguf_models import write_model
from tests.engine.seeing_folders import SPECIAL, write_seeing
from tests.engine.tiny_tokenizer import MERGES, tiny_metadata

TEXTS = {
    "gemma3": "gemma3",
    "idefics3": "llama",
    "internvl": "qwen2",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "llama",
    "pixtral": "llama",
    "qwen2_5_vl": "qwen2vl",
    "qwen2_vl": "qwen2vl",
    "qwen3_vl": "qwen3vl",
    "smolvlm": "llama",
}
"""`general.architecture` of the text model."""
TYPES = {
    "gemma3": "gemma3",
    "idefics3": "idefics3",
    "internvl": "internvl",
    "llava": "mlp",
    "llava_next": "mlp",
    "mistral3": "pixtral",
    "pixtral": "pixtral",
    "qwen2_5_vl": "qwen2.5vl_merger",
    "qwen2_vl": "qwen2vl_merger",
    "qwen3_vl": "qwen3vl_merger",
    "smolvlm": "idefics3",
}
"""`clip.projector_type`."""
LLAVA = ("llava", "llava_next")
PIXTRAL = ("pixtral", "mistral3")
QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TOWERS = ("vision_tower.", "vision_model.", "visual.")
BLOCK = re.compile(r"(?:encoder\.layers|encoder\.layer|transformer\.layers|blocks)\.(\d+)\.(.+)")
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k",
    "attention.v_proj": "attn_v",
    "attention.o_proj": "attn_out",
    "attention.projection_layer": "attn_out",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "layernorm_before": "ln1",
    "layernorm_after": "ln2",
    "attention_norm": "ln1",
    "ffn_norm": "ln2",
    "norm1": "ln1",
    "norm2": "ln2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "lambda_1": "ls1",
    "lambda_2": "ls2",
}
OTHERS = {
    "embeddings.class_embedding": "v.class_embd",
    "embeddings.cls_token": "v.class_embd",
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.patch_embeddings.projection": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd",
    "embeddings.position_embeddings": "v.position_embd.weight",
    "patch_conv": "v.patch_embd",
    "patch_embed.proj": "v.patch_embd",
    "pos_embed": "v.position_embd",
    "pre_layrnorm": "v.pre_ln",
    "ln_pre": "v.pre_ln",
    "post_layernorm": "v.post_ln",
    "merger.ln_q": "v.post_ln",
    "merger.norm": "v.post_ln",
    "merger.mlp.0": "mm.0",
    "merger.mlp.2": "mm.2",
    "merger.linear_fc1": "mm.0",
    "merger.linear_fc2": "mm.2",
    "connector.modality_projection.proj": "mm.model.fc",
    "multi_modal_projector.mm_input_projection_weight": "mm.input_projection.weight",
    "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
    "multi_modal_projector.norm": "mm.input_norm",
    "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
    "image_newline": "v.image_newline",
}
LINEAR = {"llava": ("mm.0", "mm.2"), "pixtral": ("mm.1", "mm.2"), "internvl": ("mm.model.mlp.1", "mm.model.mlp.3")}
"""The two matrices of projectors that transformers calls linear_1 and linear_2."""


def write_pair(
    folder: Path,
    family: str,
    *,
    type_of: Callable[[str], str] = lambda name: "F32",
    tokens: list[str] | None = None,
    is_old: bool = False,
):
    """Write a random model of a family as `text.gguf` and `mmproj-text.gguf`; return it with its processor.

    `type_of`: the type of a matrix of the projector by its name, of which the model is given the numbers. `tokens`:
    special ones, in place of SPECIAL. `is_old`: names of the feed-forward are swapped, as old converters have them.
    """
    source = folder / "source"
    source.mkdir()
    model, processor = write_seeing(source, family)
    _write_text(folder / "text.gguf", model, processor, family, SPECIAL if tokens is None else tokens)
    write_projector(folder / "mmproj-text.gguf", model, processor, family, type_of=type_of, is_old=is_old)
    return model, processor


def _write_text(path: Path, model, processor, family: str, tokens: list[str]) -> None:
    text_config, state = model.config.get_text_config(), model.state_dict()
    parts = {}
    for name, values in state.items():
        for prefix in ("model.language_model.", "model.text_model."):
            if name.startswith(prefix):
                parts[f"model.{name.removeprefix(prefix)}"] = values
    parts["lm_head.weight"] = model.lm_head.weight.data
    is_tied = model.lm_head.weight is model.get_input_embeddings().weight
    text_config.tie_word_embeddings = is_tied
    writer = gguf.GGUFWriter(path, TEXTS[family])
    metadata = tiny_metadata()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*metadata["tokenizer.ggml.tokens"], *tokens])
    writer.add_token_types([*metadata["tokenizer.ggml.token_type"], *[CONTROL] * len(tokens)])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(metadata["tokenizer.ggml.eos_token_id"])
    writer.add_unk_token_id(metadata["tokenizer.ggml.tokens"].index("<think>"))
    writer.add_chat_template(processor.chat_template)
    rope = getattr(text_config, "rope_parameters", None) or {}
    if sections := rope.get("mrope_section"):
        writer.add_rope_dimension_sections([*sections, 0])
    if family == "gemma3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in text_config.layer_types])
    write_model(writer, SimpleNamespace(config=text_config, state_dict=lambda: parts))


def write_projector(path: Path, model, processor, family: str, *, type_of=lambda name: "F32", is_old=False) -> None:
    """Write the tower and the projector of a model."""
    writer = gguf.GGUFWriter(path, "clip")
    _write_numbers(writer, model.config, processor.image_processor, family)
    for name, values, original in _tensors(model, family):
        if is_old:
            name = re.sub("ffn_(up|down)", lambda found: "ffn_down" if found[1] == "up" else "ffn_up", name)
        kind = type_of(name) if values.dim() == 2 else "F32"
        if values.dim() == 4 and type_of(name) == "F16":
            original.copy_(values.half())
            writer.add_tensor(name, values.half().numpy())
            continue
        if kind == "F32":
            writer.add_tensor(name, np.ascontiguousarray(values.numpy()))
            continue
        quantized = gguf.GGMLQuantizationType[kind]
        rows = gguf.quants.quantize(np.ascontiguousarray(values.numpy()), quantized)
        original.copy_(torch.from_numpy(gguf.quants.dequantize(rows, quantized)).reshape(original.shape))
        writer.add_tensor(name, rows, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_numbers(writer, config, images, family: str) -> None:
    vision = config.vision_config
    number = vision.to_dict()
    side = number.get("image_size", 32)
    patch = number["patch_size"]
    side, patch = (size[0] if isinstance(size, list) else size for size in (side, patch))
    layers = number.get("num_hidden_layers", number.get("depth"))
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(TYPES[family])
    writer.add_vision_projection_dim(config.get_text_config().hidden_size)
    writer.add_vision_image_size(side)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(number.get("embed_dim", number["hidden_size"]))
    writer.add_vision_feed_forward_length(number.get("intermediate_size", number["hidden_size"]))
    writer.add_vision_block_count(layers - 1 if family in LLAVA else layers)
    writer.add_vision_head_count(number.get("num_attention_heads", number.get("num_heads")))
    writer.add_vision_attention_layernorm_eps(number.get("layer_norm_eps", 1e-6))
    writer.add_vision_image_mean(list(images.image_mean))
    writer.add_vision_image_std(list(images.image_std))
    writer.add_vision_use_gelu(number["hidden_act"].startswith("gelu"))
    writer.add_vision_use_silu(number["hidden_act"] == "silu")
    if family in QWEN or family == "mistral3":
        writer.add_vision_spatial_merge_size(getattr(config, "spatial_merge_size", number.get("spatial_merge_size")))
    if family in QWEN:
        writer.add_vision_min_pixels(images.size["shortest_edge"])
        writer.add_vision_max_pixels(images.size["longest_edge"])
    if family == "qwen2_5_vl":
        writer.add_vision_n_wa_pattern(vision.fullatt_block_indexes[0] + 1)
        writer.add_vision_window_size(vision.window_size)
    if family == "qwen3_vl":
        writer.add_vision_is_deepstack_layers([n in vision.deepstack_visual_indexes for n in range(layers)])
    if family in ("idefics3", "smolvlm"):
        writer.add_vision_projector_scale_factor(config.scale_factor)
        writer.add_vision_preproc_image_size(images.size["longest_edge"])
    if family == "gemma3":
        writer.add_vision_projector_scale_factor(side // patch // int(config.mm_tokens_per_image**0.5))
    if family == "internvl":
        writer.add_vision_projector_scale_factor(int(1 / config.downsample_ratio))
        writer.add_vision_preproc_min_tiles(images.min_patches)
        writer.add_vision_preproc_max_tiles(images.max_patches)
    if family == "llava_next":
        pinpoints = [side for shape in config.image_grid_pinpoints for side in shape]
        writer.add_array("clip.vision.image_grid_pinpoints", pinpoints)


def _tensors(model, family: str) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield name in the file, values in the file, and the tensor of the model."""
    for name, values in model.state_dict().items():
        name = name.removeprefix("model.")
        if name.startswith(("language_model.", "text_model.", "lm_head.")):
            continue
        for prefix in TOWERS:
            name = name.removeprefix(prefix)
        yield from _written(name, values, model.config, family)


def _written(name: str, values: torch.Tensor, config, family: str):
    vision = config.vision_config
    block = BLOCK.fullmatch(name)
    if family in LLAVA and (name.startswith("post_layernorm") or block and int(block[1]) == 1):
        return  # converters leave out what is behind the layer that is projected
    if name.startswith("deepstack_merger_list."):
        _, place, part, ending = name.split(".")
        own = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}[part]
        yield f"v.deepstack.{vision.deepstack_visual_indexes[int(place)]}.{own}.{ending}", values, values
    elif name == "patch_embed.proj.weight":
        yield "v.patch_embd.weight", values[:, :, 0], values
        yield "v.patch_embd.weight.1", values[:, :, 1], values
    elif name.startswith("multi_modal_projector.linear_"):
        number, ending = name.removeprefix("multi_modal_projector.linear_").split(".")
        pair = LINEAR["pixtral" if family in PIXTRAL else "internvl" if family == "internvl" else "llava"]
        yield f"{pair[int(number) - 1]}.{ending}", values, values
    elif family == "internvl" and name.startswith("multi_modal_projector.layer_norm."):
        yield f"mm.model.mlp.0.{name.rpartition('.')[2]}", values, values
    elif block and ".qkv." in name and family != "qwen3_vl":
        for letter, part in zip("qkv", values.chunk(3), strict=True):
            yield f"v.blk.{block[1]}.attn_{letter}.{name.rpartition('.')[2]}", part, part
    elif block:
        stem, _, ending = block[2].rpartition(".")
        own = PARTS.get(stem) or PARTS[block[2]]
        ending = ending if stem in PARTS else "weight"
        if family in PIXTRAL and own in ("attn_q", "attn_k"):
            heads = vision.num_attention_heads
            adjacent = values.reshape(heads, 2, -1, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
            yield f"v.blk.{block[1]}.{own}.{ending}", adjacent, values
        else:
            yield f"v.blk.{block[1]}.{own}.{ending}", values, values
    elif name in OTHERS:
        yield OTHERS[name], values, values
    else:
        stem, _, ending = name.rpartition(".")
        yield f"{OTHERS[stem]}.{ending}", values + 1 if stem.endswith("soft_emb_norm") else values, values
