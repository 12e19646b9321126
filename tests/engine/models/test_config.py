"""Model configurations are read with their defaults; wrong, hostile or unsupported values are refused by key."""

import math

import pytest

from engine.api.errors import ModelLoadError
from engine.layers.rotary import RopeScaling
from engine.models import llama, qwen
from engine.models.config import config_from_gguf, config_from_hf

GGUF = {
    "general.architecture": "llama",
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.context_length": 512,
}
HF = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}


def from_gguf(**changes):
    metadata = GGUF | {f"llama.{key}": value for key, value in changes.items()}
    return config_from_gguf("m.gguf", metadata, llama.FAMILY, tied_output=True, vocab_size=100)


def from_hf(family=llama.FAMILY, **changes):
    return config_from_hf("config.json", HF | changes, family, "Test")


def test_values_missing_in_files_have_defaults():
    for config in (from_gguf(), from_hf()):
        assert (config.num_kv_heads, config.head_size, config.rope_theta, config.rope_scaling) == (
            4,
            16,
            10000.0,
            RopeScaling(),
        )
        assert (config.max_position, config.qkv_bias, config.output_bias) == (512, False, False)
    assert from_hf(qwen.FAMILY).qkv_bias
    assert from_hf(head_dim=32).head_size == 32


def test_both_spellings_of_rope_scaling_are_read():
    old = from_hf(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2})
    new = from_hf(rope_parameters={"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0})
    assert (old.rope_theta, old.rope_scaling.kind, old.rope_scaling.factor) == (5e5, "linear", 2.0)
    assert (new.rope_theta, new.rope_scaling) == (old.rope_theta, old.rope_scaling)
    written = from_gguf(
        **{"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}
    )
    assert written.rope_scaling == RopeScaling(kind="yarn", factor=4.0, original_length=128)


def test_a_sliding_window_bounds_the_context():
    assert from_hf(sliding_window=128).max_position == 128
    assert from_hf(sliding_window=128, use_sliding_window=False).max_position == 512


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2.0),
        ("block_count", True),
        ("context_length", 1 << 40),
        ("embedding_length", "64"),
        ("attention.head_count", [4, 4]),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 6),
        ("attention.value_length", 8),
        ("rope.dimension_count", 8),
        ("attention.layer_norm_rms_epsilon", math.nan),
        ("rope.freq_base", -1.0),
        ("rope.scaling.type", "invented"),
    ],
)
def test_an_invalid_gguf_value_is_refused(key, value):
    with pytest.raises(ModelLoadError, match=r"m\.gguf"):
        from_gguf(**{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("mlp_bias", True),
        ("use_sliding_window", True),
        ("tie_word_embeddings", "yes"),
        ("head_dim", 6),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"rope_type": ["linear"]}),
        ("rope_scaling", {"rope_type": "linear"}),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4, "rope_theta": 1}),
    ],
)
def test_an_invalid_config_value_is_refused(key, value):
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        from_hf(**{key: value})
