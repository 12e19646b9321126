"""Llama 2 and 3, SmolLM2, Falcon 3, Mistral and Ministral: the shared decoder as it stands."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config import ModelConfig
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe_llama(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {"qkv_bias": has_bias, "output_bias": has_bias, "mlp_bias": fields.flag("mlp_bias")}
    return dense_model(fields, layer)


def describe_mistral(fields: Fields) -> ModelConfig:
    if not fields.is_gguf and fields.get("model_type") != MINISTRAL_3:
        fields = fields.with_values({"sliding_window": WINDOW, **fields.values})
    config = with_windows(dense_model(fields), fields.windows(fields.num_layers))
    growth, length = fields.query_growth()
    if not growth:
        return config
    rotations = (*config.rotations, replace(config.rotations[0], growth=growth, growth_length=length))
    layers = tuple(replace(layer, query_rotation=len(rotations) - 1) for layer in config.layers)
    return replace(config, rotations=rotations, layers=layers)


WINDOW = 4096
"""Of a config.json that leaves it out, in transformers."""
MINISTRAL_3 = "ministral3"
"""The kind of text models that have none then."""
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
    gguf_names=("mistral3",),
    hf_names=(
        "MistralForCausalLM",
        "MinistralForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
    ),
    describe=describe_mistral,
    gguf_adjacent_pairs=True,
)
