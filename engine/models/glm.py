"""GLM-4 (0414): norms before and after attention and feed-forward, and half of each head rotated, in adjacent pairs."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias", fields.has_tensor("blk.0.attn_q.bias"))
    layer = {"qkv_bias": has_bias, "has_output_norms": True}
    return dense_model(fields, layer)


FAMILY = Family(
    "GLM-4 (0414)",
    gguf_names=("glm4",),
    hf_names=("Glm4ForCausalLM",),
    describe=describe,
    gguf_tensors={"gate": "ffn_up.weight"},
    hf_tensors={
        "attention_output_norm": "post_self_attn_layernorm.weight",
        "mlp_output_norm": "post_mlp_layernorm.weight",
        "gate": "mlp.gate_up_proj.weight",
        "up": "mlp.gate_up_proj.weight",
    },
    hf_defaults={"attention_bias": True, "partial_rotary_factor": 0.5, "head_dim": 128},
    gguf_adjacent_pairs=True,
    hf_adjacent_pairs=True,
)
