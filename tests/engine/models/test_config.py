"""Model configurations are read with their defaults; wrong, hostile or unsupported values are refused by key."""

import math

import pytest

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.layers.rotary import RopeScaling, Rotation
from engine.models.qwen import QWEN2
from engine.models.registry import describe_folder, describe_gguf

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
    return describe_gguf("m.gguf", metadata, {"token_embd.weight": (100, 64)})[1]


def from_gguf_of(architecture, tensors=(), **changes):
    keys = {key.removeprefix("llama."): value for key, value in GGUF.items() if key.startswith("llama.")}
    metadata = {f"{architecture}.{key}": value for key, value in (keys | changes).items()}
    shapes = dict.fromkeys(tensors, (64,)) | {"token_embd.weight": (100, 64)}
    return describe_gguf("m.gguf", metadata | {"general.architecture": architecture}, shapes)[1]


def from_hf(architecture="LlamaForCausalLM", **changes):
    return describe_folder("config.json", HF | changes | {"architectures": [architecture]})[1]


def test_values_missing_in_files_have_defaults():
    for config in (from_gguf(), from_hf()):
        shape, layer = config.attention_shape, config.layers[0]
        assert (shape.num_kv_heads, shape.head_size, config.rotations) == (4, 16, (Rotation(10000.0, 16, 16),))
        assert (config.max_position, layer.qkv_bias, layer.output_bias) == (512, False, False)
    assert from_hf("Qwen2ForCausalLM").layers[0].qkv_bias
    assert from_hf(head_dim=32).attention_shape.head_size == 32


def test_both_spellings_of_rope_scaling_are_read():
    (old,) = from_hf(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2}).rotations
    (new,) = from_hf(rope_parameters={"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}).rotations
    assert (old.theta, old.scaling.kind, old.scaling.factor) == (5e5, "linear", 2.0)
    assert new == old
    (written,) = from_gguf(
        **{"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}
    ).rotations
    assert written.scaling == RopeScaling(kind="yarn", factor=4.0, original_length=128)


YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 128}


def test_an_attention_factor_beside_yarn_does_not_make_it_longrope():
    """GGUF files of OLMo 3 have both, and their frequencies were not stretched."""
    wide, local = from_gguf_of(
        "olmo2", **YARN_KEYS, **{"rope.scaling.attn_factor": 1.2079, "attention.sliding_window": 128}
    ).rotations
    assert wide.scaling == RopeScaling(kind="yarn", factor=8.0, original_length=128)
    assert local == Rotation(10000.0, 16, 16)


def test_the_bounds_of_yarn_and_a_factor_without_a_type_are_read_from_gguf_files():
    betas = {"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0}
    (yarn,) = from_gguf(**YARN_KEYS, **betas).rotations
    assert (yarn.scaling.beta_fast, yarn.scaling.beta_slow) == (16.0, 2.0)
    (linear,) = from_gguf(**{"rope.scaling.factor": 4.0}).rotations
    assert (linear.scaling.kind, linear.scaling.factor) == ("linear", 4.0)
    assert from_gguf(**{"rope.scaling.factor": 0.0}) == from_gguf()


def test_sizes_that_a_gguf_file_lists_by_layer_are_read_if_they_are_one():
    """Files of Granite 4 list their kv heads, and were refused."""
    assert from_gguf(**{"attention.head_count_kv": [2, 2]}).attention_shape.num_kv_heads == 2


def windows(config):
    return [layer.attention.window for layer in config.layers]


def test_windows_are_read_for_each_layer():
    assert windows(from_hf("MistralForCausalLM", sliding_window=128)) == [128, 128]
    assert windows(from_hf("MistralForCausalLM", sliding_window=512)) == [0, 0]
    kinds = ["sliding_attention", "full_attention"]
    assert windows(from_hf("MistralForCausalLM", sliding_window=128, layer_types=kinds)) == [128, 0]
    qwen = {"sliding_window": 128, "max_window_layers": 1}
    assert windows(from_hf("Qwen2ForCausalLM", **qwen, use_sliding_window=True)) == [0, 128]
    assert windows(from_hf("Qwen2ForCausalLM", **qwen, use_sliding_window=False)) == [0, 0]


@pytest.mark.parametrize(
    "architecture", ["Exaone4ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "MistralForCausalLM"]
)
def test_windows_that_transformers_takes_for_granted_may_be_left_out(architecture):
    assert windows(from_hf(architecture, max_position_embeddings=8192))[0] == 4096
    assert windows(from_hf(architecture, max_position_embeddings=8192, sliding_window=None)) == [0, 0]


def test_a_window_of_zero_is_none():
    """GGUF files of Phi-4 have it, and were refused."""
    assert windows(from_gguf_of("phi3", **{"attention.sliding_window": 0})) == [0, 0]
    assert windows(from_gguf_of("phi3", **{"attention.sliding_window": 128})) == [128, 128]


def test_a_gguf_file_may_say_which_layers_have_a_window():
    """The usual layers of the family had it."""
    window = {"attention.sliding_window": 128}
    assert windows(from_gguf_of("gemma3", **window)) == [128, 128]
    marked = window | {"attention.sliding_window_pattern": [False, True]}
    assert windows(from_gguf_of("gemma3", **marked)) == [0, 128]
    assert windows(from_gguf_of("gemma3", **window | {"attention.sliding_window_pattern": 2})) == [128, 0]
    for wrong in ([True], [0, 1]):
        with pytest.raises(ModelLoadError, match=r"attention\.sliding_window_pattern must be 2 times true or false"):
            from_gguf_of("gemma3", **window | {"attention.sliding_window_pattern": wrong})


def test_llama_has_no_windows():
    assert windows(from_hf(sliding_window=128)) == [0, 0]


def test_windows_of_qwen_begin_at_any_layer():
    qwen = {"sliding_window": 128, "use_sliding_window": True}
    assert windows(from_hf("Qwen2ForCausalLM", **qwen, max_window_layers=0)) == [128, 128]
    assert windows(from_hf("Qwen2ForCausalLM", **qwen)) == [0, 0]


def test_biases_of_glm_are_those_that_its_gguf_file_has():
    """The file of the larger model has none, and was refused."""
    assert not from_gguf_of("glm4").layers[0].qkv_bias
    assert from_gguf_of("glm4", ["blk.0.attn_q.bias"]).layers[0].qkv_bias


def test_the_text_part_of_gemma3_may_leave_out_what_all_sizes_share():
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    values = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    config = describe_folder("config.json", values)[1]
    assert (config.vocab_size, config.tied_output, config.max_position) == (262208, True, 131072)
    assert config.attention_shape == AttentionShape(8, 4, 256, 1 / 16, window=1024)
    wide, local = config.rotations
    assert (wide.theta, wide.scaling.kind, wide.scaling.factor) == (1e6, "linear", 8.0)
    assert local == Rotation(10000.0, 256, 256)
    assert windows(config) == ([1024] * 5 + [0]) * 2


@pytest.mark.parametrize("architecture", ["Gemma2ForCausalLM", "SmolLM3ForCausalLM", "Starcoder2ForCausalLM"])
def test_the_output_is_tied_where_transformers_takes_that_for_granted(architecture):
    assert from_hf(architecture).tied_output
    assert not from_hf(architecture, tie_word_embeddings=False).tied_output
    assert not from_hf().tied_output


def test_a_window_beyond_the_context_leaves_the_rotation_of_its_layer():
    kinds = ["sliding_attention", "full_attention"]
    config = from_hf(
        "Gemma3ForCausalLM", head_dim=16, sliding_window=4096, layer_types=kinds, rope_local_base_freq=77.0
    )
    assert windows(config) == [0, 0]
    assert [config.rotations[layer.rotation].theta for layer in config.layers] == [77.0, 1e6]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2.0),
        ("block_count", True),
        ("context_length", 1 << 40),
        ("embedding_length", "64"),
        ("attention.head_count", [4, 2]),
        ("attention.head_count", []),
        ("attention.head_count", [[4], [4]]),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 6),
        ("attention.value_length", 8),
        ("rope.dimension_count", 7),
        ("rope.dimension_count", 18),
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
        ("mlp_bias", "yes"),
        ("partial_rotary_factor", 2.0),
        ("layer_types", ["invented", "full_attention"]),
        ("layer_types", ["full_attention"]),
        ("layer_types", [["full_attention"], {}]),
        ("hidden_act", []),
        ("rope_theta", 10**400),
        ("rms_norm_eps", 1e39),  # beyond float32
        ("rope_parameters", {"partial_rotary_factor": "half"}),
        ("rope_parameters", {"partial_rotary_factor": 1e300}),
        ("tie_word_embeddings", "yes"),
        ("head_dim", 6),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"rope_type": ["linear"]}),
        ("rope_scaling", {"rope_type": "linear"}),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4, "rope_theta": 1}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4, "mscale": "1", "mscale_all_dim": 1}),
    ],
)
def test_an_invalid_config_value_is_refused(key, value):
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        from_hf(
            "MistralForCausalLM" if key == "layer_types" else "LlamaForCausalLM", sliding_window=128, **{key: value}
        )


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 4, "truncate": False}}),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}),
    ],
)
def test_what_would_give_other_answers_than_the_models_is_refused(architecture, changes):
    """They were left out of account."""
    with pytest.raises(ModelLoadError, match=r"truncate|use_bidirectional_attention"):
        from_hf(architecture, **changes)


def test_a_granite_file_whose_layers_see_no_positions_is_refused():
    """llama.cpp's name for it is that the rotation is not finetuned."""
    values = {"attention.scale": 0.1, "rope.scaling.finetuned": True}
    assert from_gguf_of("granite", **values).rotations[0].size == 16
    with pytest.raises(ModelLoadError, match=r"rope\.scaling\.finetuned must be True"):
        from_gguf_of("granite", **values | {"rope.scaling.finetuned": False})


def test_the_frequencies_of_layers_with_windows_are_read_from_gguf_files():
    config = from_gguf_of("gemma3", **{"attention.sliding_window": 128, "rope.freq_base_swa": 77.0})
    assert [rotation.theta for rotation in config.rotations] == [10000.0, 77.0]


def test_the_first_gguf_files_of_gemma_2_leave_out_its_caps_and_its_window():
    """llama.cpp takes them for granted; scores were not capped."""
    config = from_gguf_of("gemma2", context_length=8192)
    assert [(layer.attention.softcap, layer.attention.window) for layer in config.layers] == [(50.0, 4096), (50.0, 0)]
    assert config.logits_softcap == 30.0
    assert from_gguf_of("gemma2", final_logit_softcapping=20.0).logits_softcap == 20.0


def test_a_text_model_of_llava_has_the_defaults_that_its_folder_leaves_out():
    text = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32064}
    values = {"architectures": ["LlavaForConditionalGeneration"], "text_config": text, "image_token_index": 32000}
    _, config = describe_folder("config.json", values)
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (32, 4096, 11008)
    assert (config.vocab_size, config.max_position, config.norm_eps) == (32064, 4096, 1e-5)
    assert config.attention_shape.num_heads == config.attention_shape.num_kv_heads == 32


SECTIONS = {"mrope_section": [2, 1, 1]}
QWEN2_VL = {
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
}


@pytest.mark.parametrize("is_flat", [True, False])
def test_the_text_model_of_qwen2_vl_is_described_beside_its_tower_or_in_an_object(is_flat):
    values = QWEN2_VL | {"rope_scaling": {"type": "mrope"} | SECTIONS}
    if not is_flat:
        text = values | {"model_type": "qwen2_vl_text", "rope_scaling": {"rope_type": "default"} | SECTIONS}
        values = {"architectures": values["architectures"], "text_config": text}
    family, config = describe_folder("config.json", values)
    (rotation,) = config.rotations
    assert (family, rotation.axes) == (QWEN2, [0, 0, 1, 2])


def test_stretched_rotations_of_qwen_vl_keep_their_sections():
    values = QWEN2_VL | {"rope_scaling": {"type": "yarn", "factor": 4.0} | SECTIONS}
    _, config = describe_folder("config.json", values)
    (rotation,) = config.rotations
    assert (rotation.scaling.kind, rotation.axes) == ("yarn", [0, 0, 1, 2])


def test_pairs_of_qwen3_vl_lie_in_turns():
    text = QWEN2_VL | {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_parameters": {"rope_theta": 5e6}}
    values = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text}
    _, config = describe_folder("config.json", values)
    (rotation,) = config.rotations
    assert rotation.axes == [0, 1, 2] * 20 + [0] * 4


def test_text_models_of_others_have_no_sections():
    values = QWEN2_VL | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    _, config = describe_folder(
        "config.json", values | {"rope_scaling": {"rope_type": "default", "mrope_section": [9]}}
    )
    assert config.rotations[0].sections == ()


@pytest.mark.parametrize("sections", [[2, 2, 2], [4], [2, 2, 0], "221", [2, 1, 1, 1], None])
def test_sections_that_do_not_fill_a_head_are_refused(sections):
    values = QWEN2_VL | {"rope_scaling": {"type": "mrope", "mrope_section": sections}}
    with pytest.raises(ModelLoadError, match="mrope_section"):
        describe_folder("config.json", values)
