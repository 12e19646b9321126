"""Llama 2 and 3, SmolLM2, Falcon 3, Mistral and Ministral: the shared decoder as it stands."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qkv_bias": has_bias, "output_bias": has_bias, "mlp_bias": fields.flag("mlp_bias")}
    return with_windows(dense_model(fields, layer), fields.windows(fields.num_layers))


FAMILY = Family(
    gguf_names=("llama",),
    hf_names=("LlamaForCausalLM", "MistralForCausalLM", "Mistral3ForConditionalGeneration"),
    describe=describe,
    gguf_adjacent_pairs=True,
)
