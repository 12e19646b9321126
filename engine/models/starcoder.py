"""StarCoder 2: LayerNorm, biases everywhere, a feed-forward without a gate."""

from __future__ import annotations

from engine.models.config import Activation, ModelConfig
from engine.models.family import Family, activation, dense_model, with_windows
from engine.models.fields import Fields


def describe(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("use_bias", True)
    layer = {
        "activation": activation(fields, Activation.GELU_TANH),
        "is_gated": False,
        "qkv_bias": has_bias,
        "output_bias": has_bias,
        "mlp_bias": has_bias,
    }
    eps = fields.number("attention.layer_norm_epsilon" if fields.is_gguf else "norm_epsilon")
    config = dense_model(fields, layer, norm_eps=eps, has_norm_bias=True)
    return with_windows(config, fields.windows(fields.num_layers))


FAMILY = Family(
    "StarCoder 2",
    gguf_names=("starcoder2",),
    hf_names=("Starcoder2ForCausalLM",),
    describe=describe,
    hf_defaults={"tie_word_embeddings": True, "norm_epsilon": 1e-5},
    hf_tensors={
        "up": "mlp.c_fc.weight",
        "up_bias": "mlp.c_fc.bias",
        "down": "mlp.c_proj.weight",
        "down_bias": "mlp.c_proj.bias",
    },
)
