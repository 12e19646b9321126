"""Translation of our tensor names (listed in models/decoder.py) to those of GGUF and Hugging Face files."""

from __future__ import annotations

from engine.models.config import ModelConfig

GGUF_GLOBAL = {
    "embedding": "token_embd.weight",
    "output": "output.weight",
    "final_norm": "output_norm.weight",
    "frequency_factors": "rope_freqs.weight",
}
GGUF_LAYER = {
    "attention_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "o_bias": "attn_output.bias",
}
HF_GLOBAL = {
    "embedding": "model.embed_tokens.weight",
    "output": "lm_head.weight",
    "final_norm": "model.norm.weight",
}
HF_LAYER = {
    "attention_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
}


def gguf_name(name: str) -> str:
    """Translate to GGUF: layers.3.q -> blk.3.attn_q.weight."""
    return _translate(name, GGUF_GLOBAL, GGUF_LAYER, "blk")


def hf_name(name: str) -> str:
    """Translate to Hugging Face: layers.3.q -> model.layers.3.self_attn.q_proj.weight.

    Raises KeyError for a name they never have.
    """
    return _translate(name, HF_GLOBAL, HF_LAYER, "model.layers")


def num_rotated_heads(name: str, config: ModelConfig) -> int:
    """Return the number of heads in the rows of a tensor that is rotated (q, k), else 0."""
    kind = name.rpartition(".")[2]
    if kind in ("q", "q_bias"):
        return config.num_heads
    return config.num_kv_heads if kind in ("k", "k_bias") else 0


def is_ignorable(file_name: str) -> bool:
    """Return True for tensors that a file may hold unused: a tied output, tables that are computed."""
    return file_name == "lm_head.weight" or file_name.endswith("rotary_emb.inv_freq")


def _translate(name: str, outside: dict[str, str], inside: dict[str, str], layers: str) -> str:
    if not name.startswith("layers."):
        return outside[name]
    _, layer, kind = name.split(".")
    return f"{layers}.{layer}.{inside[kind]}"
