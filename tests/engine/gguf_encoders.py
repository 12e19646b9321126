"""GGUF files of transformers' encoders, with the names and fields of llama.cpp's converter, written with gguf-py."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch

from tests.engine.encoder_folders import VOCABULARY

NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "attn_output_norm",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate",
    "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm",
    "pooler.dense": "cls",
    "classifier.dense": "cls",
    "classifier.out_proj": "cls.output",
    "classifier": "cls.output",
}
SPACE = "\u2581"


def write_gguf_encoder(path: Path, model: torch.nn.Module, pooling: gguf.PoolingType, halves: bool = False) -> Path:
    """Write an encoder of transformers. `halves`: matrices in F16, and `model` is given their numbers."""
    config = model.config
    is_nomic = config.model_type == "nomic_bert"
    writer = gguf.GGUFWriter(path, "nomic-bert" if is_nomic else "bert")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    if is_nomic:
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _write_tokenizer(writer)
    if halves:
        for values in model.state_dict().values():
            values.copy_(values.half() if values.dim() == 2 else values)
    for name, values in _tensors(model):
        writer.add_tensor(name, values.numpy().astype("float16") if halves and values.dim() == 2 else values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model):
    first = 2 if model.config.model_type == "xlm-roberta" else 0
    stacks: dict[str, list[torch.Tensor]] = {}
    for name, values in model.state_dict().items():
        name = name.removeprefix(f"{model.base_model_prefix}.")
        place, end = name.rpartition(".")[::2]
        block = ""
        for layers in ("encoder.layer.", "layers."):
            if place.startswith(layers):
                number, _, place = place.removeprefix(layers).partition(".")
                block = f"blk.{number}."
        if place in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            stacks.setdefault(f"{block}attn_qkv.{end}", []).append(values)
            continue
        if place == "embeddings.position_embeddings":
            values = values[first:]
        if place in NAMES:
            yield f"{block}{NAMES[place]}.{end}", values
    for name, parts in stacks.items():
        yield name, torch.cat(parts)


def _write_tokenizer(writer):
    special = VOCABULARY[:4]
    stored = [t if t in special else t[2:] if t.startswith("##") else SPACE + t for t in VOCABULARY]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(stored)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in special else normal for token in VOCABULARY])
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
    writer.add_sep_token_id(3)
