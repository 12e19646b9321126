"""Gemma 4: heads of two sizes, layers that read the keys of others, inputs of single layers, scaled layers."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.layers.rotary import Rotation
from engine.models.config import Activation, LayerConfig, ModelConfig, QkNorm
from engine.models.family import Family, activation
from engine.models.fields import Fields

PATTERN = 6
"""Every sixth layer sees everything, where a file does not say which."""
GLOBAL_HEAD_SIZE = 512
FULL, LOCAL = 0, 1
"""Rotations."""


def describe(fields: Fields) -> ModelConfig:
    fields.expect("use_bidirectional_attention", "vision")
    if fields.get("expert_count"):
        raise ModelLoadError(f"{fields.source}: Gemma 4 with experts cannot be served")
    num_layers = fields.num_layers
    windows = fields.windows(num_layers, pattern=PATTERN)
    if windows[-1]:
        windows = (*windows[:-1], 0)
    shapes = _shapes(fields, windows)
    local = next((shape for shape in shapes if shape.window), shapes[-1])
    softcap = fields.number("logits_softcap") if fields.get("logits_softcap") is not None else 0.0
    num_own = num_layers - fields.count("num_kv_shared_layers")
    input_size = fields.count("own_input_size")
    input_vocab_size = fields.size("vocab_size_per_layer_input", fields.vocab_size) if input_size else 0
    if input_size and input_vocab_size < fields.vocab_size:
        raise fields.wrong("vocab_size_per_layer_input", f"an integer from {fields.vocab_size}", input_vocab_size)
    inner = fields.sizes("intermediate_size", num_layers)
    is_doubled = fields.flag("use_double_wide_mlp")
    has_bias = fields.flag("attention_bias")
    layers = []
    for number, window in enumerate(windows):
        source = None if number < num_own else _last_alike(windows, number, num_own, fields)
        layers.append(
            LayerConfig(
                attention=replace(shapes[number], source=source),
                intermediate_size=inner[number] * (2 if is_doubled and source is not None else 1),
                rotation=LOCAL if window else FULL,
                qk_norm=QkNorm.HEAD,
                qkv_bias=has_bias,
                output_bias=has_bias,
                activation=activation(fields, Activation.GELU_TANH),
                has_output_norms=True,
                has_value_norm=True,
                values_are_keys=not window and _values_are_keys(fields, number),
                input_size=input_size,
                has_scale=True,
            )
        )
    return ModelConfig(
        architecture=fields.architecture,
        vocab_size=fields.vocab_size,
        hidden_size=fields.size("hidden_size"),
        layers=tuple(layers),
        rotations=_rotations(fields, shapes[-1].head_size, local.head_size),
        norm_eps=fields.number("norm_eps"),
        max_position=fields.max_position,
        tied_output=fields.tied_output,
        embedding_scale=sqrt(fields.size("hidden_size")),
        logits_softcap=softcap,
        input_vocab_size=input_vocab_size,
    )


def _shapes(fields: Fields, windows: tuple[int, ...]) -> list[AttentionShape]:
    """Read the heads of each layer; those that see everything have a size of their own."""
    num_heads, kv_heads = fields.size("num_heads"), fields.sizes("num_kv_heads", len(windows))
    if fields.is_gguf:
        full_size = fields.size("head_size")
        local_size = fields.size("attention.key_length_swa", full_size)
        sizes = [(count, local_size if window else full_size) for count, window in zip(kv_heads, windows, strict=True)]
    else:
        sizes = [_heads_in_folder(fields, number, window > 0) for number, window in enumerate(windows)]
    return [
        AttentionShape(num_heads, count, size, scale=1.0, window=window)
        for (count, size), window in zip(sizes, windows, strict=True)
    ]


def _heads_in_folder(fields: Fields, number: int, is_local: bool) -> tuple[int, int]:
    """Read kv heads and their size. Newer files list what differs by layer, those of the makers by kind of layer."""
    listed = fields.get("per_layer_config")
    if listed is not None:
        if not isinstance(listed, dict) or not all(isinstance(own, dict) for own in listed.values()):
            raise fields.wrong("per_layer_config", "an object of objects", listed)
        # The numbers of layers are filled up with zeros to the length of the longest.
        own = next((own for key, own in listed.items() if str(key).lstrip("0") == str(number).lstrip("0")), {})
        layer = fields.with_values({**fields.values, **own})
        return layer.size("num_kv_heads"), layer.size("head_size")
    if is_local:
        return fields.size("num_kv_heads"), fields.size("head_size")
    is_global = fields.flag("attention_k_eq_v") and fields.get("num_global_key_value_heads") is not None
    num_kv_heads = fields.size("num_global_key_value_heads") if is_global else fields.size("num_kv_heads")
    return num_kv_heads, fields.size("global_head_dim", GLOBAL_HEAD_SIZE)


def _rotations(fields: Fields, full_size: int, local_size: int) -> tuple[Rotation, Rotation]:
    """Read both rotations. A GGUF file says by divisors of the frequencies which pairs of the full one do not turn."""
    if fields.is_gguf:
        local = replace(fields.whole_rotation(local_size, "local_theta"), is_divided=False)
        return fields.whole_rotation(full_size, "rope.freq_base"), local
    if fields.get("rope_parameters") is None:
        fields = fields.with_values({**fields.values, "rope_parameters": ROTATIONS})
    return fields.rotation(full_size, "full_attention"), fields.rotation(local_size, "sliding_attention")


def _values_are_keys(fields: Fields, number: int) -> bool:
    if fields.is_gguf:
        return not fields.has_tensor(f"blk.{number}.attn_v.weight")
    return fields.flag("attention_k_eq_v")


def _last_alike(windows: tuple[int, ...], number: int, num_own: int, fields: Fields) -> int:
    """Return the last layer with keys of its own that sees as far as layer `number`."""
    for source in reversed(range(num_own)):
        if (windows[source] > 0) == (windows[number] > 0):
            return source
    raise fields.wrong("num_kv_shared_layers", "so few that a layer of each kind has its own keys", num_own)


ROTATIONS = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
"""Of a config.json that leaves them out, or has null."""
HF_DEFAULTS = {
    "tie_word_embeddings": True,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 512,
    "rms_norm_eps": 1e-6,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
}
FAMILY = Family(
    "Gemma 4 (text, without experts)",
    gguf_names=("gemma4",),
    hf_names=("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
    describe=describe,
    hf_tensors={
        "attention_output_norm": "post_attention_layernorm.weight",
        "mlp_norm": "pre_feedforward_layernorm.weight",
        "mlp_output_norm": "post_feedforward_layernorm.weight",
    },
    hf_defaults=HF_DEFAULTS,
    hf_without=("enable_moe_block",),
    gguf_defaults={"rope.freq_base": 1000000.0},
)
