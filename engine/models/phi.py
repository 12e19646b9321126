"""Phi-3, 3.5 and 4: queries, keys and values in one tensor, gate and up in another."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    return with_windows(dense_model(fields), fields.windows(fields.num_layers))


QKV_GGUF, QKV_HF, UP_HF = "attn_qkv.weight", "self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"
FAMILY = Family(
    "Phi-3, 3.5 and 4",
    gguf_names=("phi3",),
    hf_names=("Phi3ForCausalLM",),
    describe=describe,
    gguf_tensors={"q": QKV_GGUF, "k": QKV_GGUF, "v": QKV_GGUF, "gate": "ffn_up.weight"},
    hf_tensors={"q": QKV_HF, "k": QKV_HF, "v": QKV_HF, "gate": UP_HF, "up": UP_HF},
)
