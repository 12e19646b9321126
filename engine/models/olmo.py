"""OLMo 2 and 3: norms after attention and feed-forward instead of before them, and norms over all queries and all keys.

OLMo 3 has windows in three of four layers, whose rotation is not stretched.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.config import ModelConfig, QkNorm
from engine.models.family import Family, dense_model, with_windows
from engine.models.fields import Fields


def describe_olmo2(fields: Fields) -> ModelConfig:
    has_bias = fields.flag("attention_bias")
    layer = {
        "qk_norm": QkNorm.WIDTH,
        "qkv_bias": has_bias,
        "output_bias": has_bias,
        "has_input_norms": False,
        "has_output_norms": True,
    }
    rotation = fields.rotation(fields.attention_shape().head_size, "full_attention")
    config = dense_model(fields, layer, rotations=(rotation,))
    if fields.get("sliding_window") is None:
        return config
    local = fields.local_rotation(rotation.head_size, rotation.theta)
    config = replace(config, rotations=(rotation, local))
    return with_windows(config, fields.windows(fields.num_layers, pattern=4), {False: 0, True: 1})


FAMILY = Family(
    "OLMo 2 and 3",
    gguf_names=("olmo2",),
    hf_names=("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
    describe=describe_olmo2,
    hf_tensors={
        "attention_output_norm": "post_attention_layernorm.weight",
        "mlp_output_norm": "post_feedforward_layernorm.weight",
    },
)
