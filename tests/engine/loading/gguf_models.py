"""GGUF files of transformers' models, written with gguf-py: its table of names, llama.cpp's order of rows."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from pathlib import Path
from zlib import crc32

import gguf
import numpy as np
import torch

from tests.engine.quantization.gguf_rows import TYPES, stored_rows

ADJACENT_PAIRS = ("llama", "granite", "mistral3", "smollm3")
"""Architectures whose q and k rows llama.cpp's converter reorders (convert_hf_to_gguf.py, MIT)."""
OUTPUT_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
RENAMED = {
    # In these files the common names stand for other norms than in the table of names.
    "glm4": {
        "post_self_attn_layernorm": "post_attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    },
    "olmo2": OUTPUT_NORMS,
    "exaone4": OUTPUT_NORMS,
    "gemma2": OUTPUT_NORMS | {"pre_feedforward_layernorm": "ffn_norm"},
    "gemma3": OUTPUT_NORMS | {"pre_feedforward_layernorm": "ffn_norm"},
    "gemma4": OUTPUT_NORMS | {"pre_feedforward_layernorm": "ffn_norm"},
}


def write_gguf(
    path: Path,
    model: torch.nn.Module,
    architecture: str,
    extra: dict[str, torch.Tensor] | None = None,
    sections: list[int] | None = None,
) -> Path:
    """Write a model in float32; see `write_model`."""
    write_model(gguf.GGUFWriter(path, architecture), model, extra, sections)
    return path


def write_model(
    writer: gguf.GGUFWriter,
    model: torch.nn.Module,
    extra: dict[str, torch.Tensor] | None = None,
    sections: list[int] | None = None,
    type_of: Callable[[str], str] = lambda name: "F32",
) -> None:
    """Write the weights of `model`, and `extra` tensors by their names in the file.

    `sections`: of positions of images, for which the rows of q and k are written as two halves. `type_of`: the type of
    a matrix by its name in the file, float32 if its rows are no whole blocks. `model` is given the numbers of the file.
    """
    architecture, config = writer.arch, model.config
    _write_fields(writer, config, architecture)
    if sections:
        writer.add_rope_dimension_sections(sections)
    kind = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    for name, values in model.state_dict().items():
        if name in tied:
            continue
        stem, _, ending = name.rpartition(".")
        found = _renamed(architecture, stem) or names.get_name(stem)
        if ending == "layer_scalar":
            found, ending = names.get_name(name), "weight"
        assert found is not None, name
        found = f"{found}.{ending}"
        raw_dtype, type_name = None, type_of(found) if values.dim() == 2 else "F32"
        if type_name != "F32" and values.shape[-1] % TYPES[type_name].block_size == 0:
            raw_dtype = gguf.GGMLQuantizationType[type_name]
            values = _stored(type_name, values, crc32(found.encode()))
        if architecture in ADJACENT_PAIRS and stem.endswith(("q_proj", "k_proj")):
            num_heads = config.num_attention_heads if stem.endswith("q_proj") else config.num_key_value_heads
            values = _adjacent_rows(values, num_heads)
        if sections and stem.endswith(("q_proj", "k_proj")):
            values = _halves(
                values, config.head_dim, int(config.head_dim * config.rope_parameters["partial_rotary_factor"])
            )
        if architecture in ("gemma2", "gemma3") and stem.endswith("norm"):
            values = values + 1
        writer.add_tensor(found, values.numpy(), raw_dtype=raw_dtype)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _stored(type_name: str, values: torch.Tensor, seed: int) -> torch.Tensor:
    """Return rows of blocks (N, bytes per row), and set `values` (N, K) to their numbers."""
    rows, numbers = stored_rows(type_name, values.numpy(), seed)
    values.copy_(torch.from_numpy(numbers))
    return torch.from_numpy(rows)


def _renamed(architecture: str, stem: str) -> str | None:
    *_, last = stem.split(".")
    name = RENAMED.get(architecture, {}).get(last)
    return f"blk.{stem.split('.')[2]}.{name}" if name else None


def _adjacent_rows(values: torch.Tensor, num_heads: int) -> torch.Tensor:
    return (
        values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
        .swapaxes(1, 2)
        .reshape(values.shape)
    )


def _halves(values: torch.Tensor, head_size: int, rotated: int) -> torch.Tensor:
    rows = values.unflatten(0, (-1, head_size))
    return torch.cat((rows[:, :rotated:2], rows[:, 1:rotated:2], rows[:, rotated:]), 1).flatten(0, 1)


def _write_fields(writer, config, architecture: str) -> None:
    is_gemma4 = config.model_type == "gemma4_text"
    head_size = (
        0 if is_gemma4 else getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    if not is_gemma4:
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if is_gemma4:
        _write_gemma4_fields(writer, config)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    if not is_gemma4:
        writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
        if architecture == "olmo2":
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "attn_logit_softcapping", None):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(0.1 * log(rope["factor"]) + 1)  # as files of OLMo 3 have it
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(
            (1 + log(config.max_position_embeddings / original) / log(original)) ** 0.5
        )
    if hasattr(config, "norm_epsilon"):
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if hasattr(config, "embedding_multiplier"):
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def _write_gemma4_fields(writer, config) -> None:
    """Write what differs by layer, and which pairs of the whole rotation do not turn, as llama.cpp's converter does."""
    layers = [config.per_layer_config[number] for number in range(config.num_hidden_layers)]
    local, full = layers[0], layers[-1]
    writer.add_head_count_kv([layer.num_key_value_heads for layer in layers])
    writer.add_key_length(full.head_dim)
    writer.add_value_length(full.head_dim)
    writer.add_key_length_swa(local.head_dim)
    writer.add_value_length_swa(local.head_dim)
    num_own = config.num_hidden_layers - config.num_kv_shared_layers
    wide = [config.use_double_wide_mlp and number >= num_own for number in range(config.num_hidden_layers)]
    writer.add_feed_forward_length([config.intermediate_size * (1 + is_wide) for is_wide in wide])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_rope_dimension_count(full.head_dim)
    writer.add_rope_dimension_count_swa(local.head_dim)
    num_turned = int(config.rope_parameters["full_attention"]["partial_rotary_factor"] * full.head_dim // 2)
    divisors = [1.0] * num_turned + [1e30] * (full.head_dim // 2 - num_turned)
    writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))
