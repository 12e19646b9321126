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
WRAPPED = {
    **dict.fromkeys("qkv", "self_attn.qkv_proj.base_layer.weight"),
    **dict.fromkeys(("gate", "up"), "mlp.gate_up_proj.base_layer.weight"),
    "o": "self_attn.o_proj.base_layer.weight",
    "down": "mlp.down_proj.base_layer.weight",
}
MAKERS_MULTIMODAL = Family(
    "Phi-4-multimodal",
    gguf_names=(),
    hf_names=("Phi4MMForCausalLM",),
    describe=describe,
    hf_tensors=WRAPPED,
    hf_unused=(".lora_A.", ".lora_B."),
)
"""Its adapters lie beside the weights that they change. Those of images are in a folder of their own, too."""
