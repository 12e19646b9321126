"""Llama 2 and 3, SmolLM2, Falcon 3, Mistral and Ministral: the shared decoder as it stands."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe_llama(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qkv_bias": has_bias, "output_bias": has_bias, "mlp_bias": fields.flag("mlp_bias")}
    return dense_model(fields, layer)


def describe_mistral(fields: Fields) -> ModelConfig:
    return with_windows(dense_model(fields), fields.windows(fields.num_layers))


EXAONE_3 = Family("EXAONE 3", gguf_names=("exaone",), hf_names=(), describe=describe_llama)
LLAMA = Family(
    "Llama 2 and 3, SmolLM2, Falcon 3",
    gguf_names=("llama",),
    hf_names=("LlamaForCausalLM",),
    describe=describe_llama,
    gguf_adjacent_pairs=True,
)
MISTRAL = Family(
    "Mistral, Mistral Small 3, Ministral (text)",
    gguf_names=(),
    hf_names=(
        "MistralForCausalLM",
        "MinistralForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
    ),
    describe=describe_mistral,
    hf_defaults={"sliding_window": 4096},
)
