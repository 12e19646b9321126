"""Gemma 2 and 3: norms before and after attention and feed-forward, windows in most layers, scaled embeddings."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from engine.models.config import Activation, ModelConfig, QkNorm
from engine.models.family import Family, activation, dense_model, with_windows
from engine.models.fields import Fields

LAYERS_OF_27B = {2: 46, 3: 62}
"""By version. GGUF files do not say that these scale attention by the hidden size of a head's share."""
LOCAL_THETA = 10000.0


def describe_gemma2(fields: Fields) -> ModelConfig:
    return with_windows(_model(fields, version=2), fields.windows(fields.num_layers, pattern=2))


def describe_gemma3(fields: Fields) -> ModelConfig:
    config = _model(fields, version=3)
    head_size = config.attention_shape.head_size
    if fields.get("rope_parameters") is not None:
        local = fields.rotation(head_size, "sliding_attention")
    else:
        local = fields.local_rotation(head_size, fields.number("local_theta", LOCAL_THETA))
    config = replace(config, rotations=(fields.rotation(head_size, "full_attention"), local))
    return with_windows(config, fields.windows(fields.num_layers, pattern=6), {False: 0, True: 1})


def _model(fields: Fields, version: int) -> ModelConfig:
    shape = fields.attention_shape()
    scaled_size = shape.head_size
    if fields.is_gguf:
        if fields.num_layers == LAYERS_OF_27B[version]:
            scaled_size = fields.size("hidden_size") // shape.num_heads
    else:
        scaled_size = fields.size("query_pre_attn_scalar", scaled_size)
    softcap = fields.number("attention_softcap") if fields.get("attention_softcap") is not None else 0.0
    final_softcap = fields.number("logits_softcap") if fields.get("logits_softcap") is not None else 0.0
    has_bias = fields.flag("attention_bias")
    fields.expect("use_bidirectional_attention", False)
    layer = {
        "attention": replace(shape, scale=1 / sqrt(scaled_size), softcap=softcap),
        "qk_norm": QkNorm.HEAD if version == 3 else QkNorm.NONE,
        "qkv_bias": has_bias,
        "output_bias": has_bias,
        "activation": activation(fields, Activation.GELU_TANH),
        "has_output_norms": True,
    }
    return dense_model(
        fields,
        layer,
        embedding_scale=sqrt(fields.size("hidden_size")),
        logits_softcap=final_softcap,
        rotations=(fields.rotation(shape.head_size, "full_attention"),),
    )


HF_TENSORS = {
    "attention_output_norm": "post_attention_layernorm.weight",
    "mlp_norm": "pre_feedforward_layernorm.weight",
    "mlp_output_norm": "post_feedforward_layernorm.weight",
}
HF_DEFAULTS = {
    "tie_word_embeddings": True,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}
"""Folders of Gemma 3 with a vision tower leave out most of them."""
SOFTCAPS_2 = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
GEMMA2 = Family(
    "Gemma 2",
    gguf_names=("gemma2",),
    hf_names=("Gemma2ForCausalLM",),
    describe=describe_gemma2,
    hf_tensors=HF_TENSORS,
    hf_defaults=HF_DEFAULTS | SOFTCAPS_2,
    gguf_defaults=SOFTCAPS_2 | {"attention.sliding_window": 4096},
    hf_norm_offset=1.0,
)
GEMMA3 = Family(
    "Gemma 3 (text)",
    gguf_names=("gemma3",),
    hf_names=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    describe=describe_gemma3,
    hf_tensors=HF_TENSORS,
    hf_defaults=HF_DEFAULTS | {"vocab_size": 262208, "max_position_embeddings": 131072, "rope_theta": 1e6},
    hf_norm_offset=1.0,
)
