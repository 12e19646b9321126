"""Logits against transformers on random small checkpoints, in float32."""

import json

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.loading.loader import LoadedModel, load_model
from engine.loading.names import name_in_folder
from engine.models.registry import describe_folder
from tests.engine.dense_attention import DenseHistory
from tests.engine.random_model import random_model

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
SCALED_QUERIES = YARN | {"llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0}
SCALED_QUERIES |= {"original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}
MSCALE = YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}
VARIANTS = {
    "llama": ("Llama", {}),
    "llama with grouped queries": ("Llama", {"num_key_value_heads": 2}),
    "llama with tied output": ("Llama", {"tie_word_embeddings": True}),
    "llama with a head size of its own": ("Llama", {"head_dim": 24, "num_key_value_heads": 1}),
    "llama with biases": ("Llama", {"attention_bias": True}),
    "llama with llama3 scaling": ("Llama", {"rope_parameters": LLAMA3}),
    "llama with linear scaling": ("Llama", {"rope_parameters": LINEAR}),
    "llama with yarn scaling": ("Llama", {"rope_parameters": YARN}),
    "llama with yarn scaling and a quotient of two scales": ("Llama", {"rope_parameters": MSCALE}),
    "mistral": ("Mistral", {"num_key_value_heads": 2, "sliding_window": None}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 32}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
            "num_key_value_heads": 2,
        },
    ),
    "olmo2": ("Olmo2", {"num_key_value_heads": 2}),
    "starcoder2": ("Starcoder2", {"num_key_value_heads": 2}),
    "glm4": ("Glm4", {"num_key_value_heads": 2, "head_dim": 16, "attention_bias": True, "pad_token_id": 0}),
    "smollm3": ("SmolLM3", {"num_key_value_heads": 2, "num_hidden_layers": 5, "pad_token_id": 0}),
    "phi3": ("Phi3", {"num_key_value_heads": 2, "pad_token_id": 0}),
    "phi3 with partial rotation": (
        "Phi3",
        {
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "gemma2": (
        "Gemma2",
        {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 20, "query_pre_attn_scalar": 24},
    ),
    "gemma3": (
        "Gemma3Text",
        {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 7},
    ),
    "gemma4": (
        "Gemma4Text",
        {"head_dim": 8, "global_head_dim": 16, "num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 6}
        | {"layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2, "num_kv_shared_layers": 2}
        | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "use_double_wide_mlp": True}
        | {"final_logit_softcapping": 3.0},
    ),
    "gemma4 with values that are keys": (
        "Gemma4Text",
        {"head_dim": 8, "global_head_dim": 16, "num_key_value_heads": 2, "num_global_key_value_heads": 1}
        | {"sliding_window": 20, "num_hidden_layers": 7, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    ),
    "olmo3": ("Olmo3", {"num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 5}),
    "exaone4": ("Exaone4", {"num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 5}),
    "exaone4 without windows": (
        "Exaone4",
        {"num_key_value_heads": 2, "sliding_window": None, "layer_types": ["full_attention"] * 3},
    ),
    "mistral with a window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 20}),
    "starcoder2 with a window": ("Starcoder2", {"num_key_value_heads": 2, "sliding_window": 20}),
    "phi3 with a window": ("Phi3", {"pad_token_id": 0, "sliding_window": 20}),
    "qwen3 with windows": (
        "Qwen3",
        {"head_dim": 16, "sliding_window": 20, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "ministral": (
        "Ministral",
        {"num_key_value_heads": 2, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"] * 2}
        | {"num_hidden_layers": 4, "head_dim": 16},
    ),
    "ministral3": (
        "Ministral3",
        {"num_key_value_heads": 2, "sliding_window": None, "head_dim": 16, "rope_parameters": SCALED_QUERIES},
    ),
    "granite 4 without experts and states": (
        "GraniteMoeHybrid",
        {"num_key_value_heads": 2, "num_local_experts": 0, "layer_types": ["full_attention"] * 3}
        | {"position_embedding_type": "rope", "shared_intermediate_size": 48, "mamba_n_heads": 4}
        | {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2},
    ),
    "granite 4 without positions": (
        "GraniteMoeHybrid",
        {"num_key_value_heads": 2, "num_local_experts": 0, "layer_types": ["full_attention"] * 3}
        | {"shared_intermediate_size": 48, "mamba_n_heads": 4, "attention_multiplier": 0.2},
    ),
    "granite with sinks": (
        "GraniteSWA",
        {"num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 5, "attention_multiplier": 0.2}
        | {"residual_multiplier": 0.5, "layer_rope_theta": [0, 10000.0, 500000, 0, 10000.0]},
    ),
    "granite with sinks alone": (
        "GraniteSWA",
        {"layer_types": ["full_attention"] * 3, "head_dim": 24, "attention_bias": True},
    ),
    "qwen2 untied with yarn": ("Qwen2", {"num_key_value_heads": 2, "rope_parameters": YARN}),
}


def small_model(family: str, changes: dict) -> torch.nn.Module:
    """Return a transformers model with random parameters, including biases and norms."""
    return random_model(family, spread=0.1, **SIZES | changes)


def run(model: LoadedModel, prompts: list[torch.Tensor], cuts: list[int]) -> list[torch.Tensor]:
    """Compute all prompts together in steps that end at `cuts`; logits (length, V) of each prompt."""
    history = DenseHistory([layer.attention for layer in model.config.layers], len(prompts))
    pieces = [[] for _ in prompts]
    for start, stop in zip([0, *cuts], [*cuts, max(map(len, prompts))], strict=True):
        parts = [prompt[start:stop] for prompt in prompts]
        positions = [torch.arange(start, start + len(part)) for part in parts]
        lengths = [len(part) for part in parts]
        hidden = model.decoder.forward(torch.cat(parts), torch.cat(positions), history.step(lengths))
        for piece, logits in zip(pieces, model.decoder.logits(hidden).split(lengths), strict=True):
            piece.append(logits)
    return [torch.cat(piece) for piece in pieces]


FACTORS = {"short_factor": [1.0 + 0.1 * pair for pair in range(8)], "long_factor": [2.0 + pair for pair in range(8)]}
LONGROPE = FACTORS | {"rope_type": "longrope", "rope_theta": 10000.0}
LONGROPE_CONFIG = {"pad_token_id": 0, "original_max_position_embeddings": 64, "rope_parameters": LONGROPE}


@pytest.mark.parametrize(("context", "length"), [(64, 60), (0, 100)])
def test_longrope_has_the_factors_of_the_context_that_is_opened(tmp_path, context, length):
    """transformers takes the long ones for a prompt of more than the original context."""
    reference = small_model("Phi3", LONGROPE_CONFIG)
    reference.save_pretrained(tmp_path)
    prompt = torch.arange(length) % 96
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    (logits,) = run(load_model(tmp_path, weights="float32", max_model_len=context), [prompt], [9])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(tmp_path, variant):
    reference = small_model(*VARIANTS[variant])
    reference.save_pretrained(tmp_path)
    model = load_model(tmp_path, weights="float32")
    prompts = [
        torch.randint(0, 96, (length,), generator=torch.Generator().manual_seed(length)) for length in (100, 1, 37)
    ]
    for prompt, logits in zip(prompts, run(model, prompts, cuts=[1, 30, 31]), strict=True):
        with torch.inference_mode():
            expected = reference(prompt[None]).logits[0]
        # Two float32 orders of summation.
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


OLD_SPELLINGS = {
    "llama": ("Llama", {"rope_parameters": LLAMA3}, {"rope_scaling": LLAMA3, "rope_theta": 10000.0}),
    "glm4": ("Glm4", {"head_dim": 16, "pad_token_id": 0}, {"rope_theta": 10000.0}),
    "gemma4": (
        "Gemma4Text",
        {"num_hidden_layers": 7, "global_head_dim": 16, "hidden_size_per_layer_input": 8, "sliding_window": 20}
        | {"vocab_size_per_layer_input": 96, "head_dim": 8},
        {},
    ),
    "granite with sinks": ("GraniteSWA", {"num_hidden_layers": 5, "num_key_value_heads": 4}, {}),
    "smollm3": ("SmolLM3", {"pad_token_id": 0}, {}),
    "starcoder2": ("Starcoder2", {}, {}),
    "gemma2": ("Gemma2", {"head_dim": 16}, {}),
    "gemma3": (
        "Gemma3Text",
        {
            "num_hidden_layers": 7,
            "head_dim": 16,
            "sliding_window": 20,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
}


@pytest.mark.parametrize("name", OLD_SPELLINGS)
def test_a_config_that_leaves_out_what_transformers_takes_for_granted_is_read_alike(tmp_path, name):
    family, changes, spelling = OLD_SPELLINGS[name]
    reference = small_model(family, changes)
    reference.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    usual = type(reference.config)().to_dict()
    kept = {
        key: value for key, value in values.items() if key in ("architectures", "head_dim") or usual.get(key) != value
    }
    for key in ("rope_parameters", "layer_types", "no_rope_layers"):
        kept.pop(key, None)
    (tmp_path / "config.json").write_text(json.dumps(SIZES | kept | spelling))
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    torch.testing.assert_close(
        run(load_model(tmp_path, weights="float32"), [prompt], [9])[0], expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("architecture", "model_type", "window"),
    [
        ("MistralForCausalLM", "mistral", 4096),
        ("Ministral3ForCausalLM", "ministral3", 0),
        ("Mistral3ForConditionalGeneration", "mistral", 4096),
        ("Mistral3ForConditionalGeneration", "ministral3", 0),
    ],
)
def test_a_window_that_a_config_leaves_out_is_that_of_transformers_for_its_kind_of_model(
    architecture, model_type, window
):
    text = SIZES | {"max_position_embeddings": 8192, "model_type": model_type}
    _, config = describe_folder("config.json", {"architectures": [architecture], "text_config": text})
    assert {layer.attention.window for layer in config.layers} == {window}


TEXT = SIZES | {"num_key_value_heads": 2, "head_dim": 16}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}


TOWERS = ("Gemma3", "Gemma4", "Mistral3")


@pytest.mark.parametrize("family", TOWERS)
def test_the_text_part_of_a_model_with_a_vision_tower_is_served(tmp_path, family):
    transformers = pytest.importorskip("transformers")
    of_tower = {"Mistral3": {"head_dim": 16}, "Gemma4": {"head_dim": 16, "num_key_value_heads": 1}}
    vision = VISION | {"image_size": 28, "patch_size": 14} | of_tower.get(family, {})
    text = SIZES | VARIANTS["gemma4"][1] if family == "Gemma4" else TEXT
    config = getattr(transformers, f"{family}Config")(text_config=text, vision_config=vision)
    torch.manual_seed(0)
    reference = getattr(transformers, f"{family}ForConditionalGeneration")(config).float().eval()
    reference.save_pretrained(tmp_path)
    prompt = torch.arange(40)
    with torch.inference_mode():
        expected = reference(input_ids=prompt[None]).logits[0]
    torch.testing.assert_close(
        run(load_model(tmp_path, weights="float32"), [prompt], [9])[0], expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention must be 'vision'"),
        ({"per_layer_config": {"2": 16}}, "per_layer_config must be an object of objects"),
        ({"vocab_size_per_layer_input": 95}, "vocab_size_per_layer_input must be an integer from 96, got '95'"),
        (
            {"per_layer_config": {"2": {"head_dim": 16}, "5": {"head_dim": 16, "num_key_value_heads": 4}}},
            "layer 5 reads the keys of layer 2, so both must have the same kv heads and head size",
        ),
        ({"num_kv_shared_layers": 5}, "num_kv_shared_layers must be so few that"),
        ({"per_layer_config": None, "num_kv_shared_layers": 6}, "num_kv_shared_layers must be so few that"),
        ({"global_head_dim": 20, "per_layer_config": None}, "tensor 'model.layers.2.* must have the shape"),
    ],
)
def test_a_gemma_4_that_cannot_be_served_is_refused_with_the_reason(tmp_path, changes, what):
    small_model(*VARIANTS["gemma4"]).save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelLoadError, match=what):
        load_model(tmp_path, weights="float32")


def test_heads_of_two_sizes_are_read_as_their_makers_write_them(tmp_path):
    """transformers lists them by layer since its version 5."""
    reference = small_model(*VARIANTS["gemma4"])
    reference.save_pretrained(tmp_path)
    edit_config(tmp_path, per_layer_config=None, global_head_dim=16)
    prompt = torch.arange(40)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    found = run(load_model(tmp_path, weights="float32"), [prompt], [9])[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_rotations_that_a_config_sets_to_null_are_those_of_transformers(tmp_path):
    reference = small_model(*VARIANTS["gemma4"])
    reference.save_pretrained(tmp_path)
    edit_config(tmp_path, rope_parameters=None)
    prompt = torch.arange(40)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    found = run(load_model(tmp_path, weights="float32"), [prompt], [9])[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_keys_that_a_folder_holds_for_layers_that_share_them_are_left_out(tmp_path):
    """Files of the makers have them."""
    from safetensors.torch import load_file, save_file

    small_model(*VARIANTS["gemma4"]).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.4.self_attn.k_proj.weight"] = torch.ones(16, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    load_model(tmp_path, weights="float32")
    tensors["model.layers.3.self_attn.x_proj.weight"] = torch.ones(16, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match="x_proj"):
        load_model(tmp_path, weights="float32")


def test_a_model_that_no_device_but_a_cpu_computes_is_refused_there_before_its_weights_are_read(tmp_path):
    small_model(*VARIANTS["gemma4"]).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="layers with different heads are computed on a CPU only"):
        load_model(tmp_path, weights="bf16", device="cuda")


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_names_of_a_text_model_are_found_within_a_larger_one(prefix):
    names = {f"{prefix}norm.weight", "vision_tower.norm.weight"}
    assert name_in_folder("model.norm.weight", names) == f"{prefix}norm.weight"
    assert name_in_folder("model.gone.weight", names) == "model.gone.weight"


def test_a_sharded_folder_loads_like_a_single_file(tmp_path):
    reference = small_model("Llama", {})
    reference.save_pretrained(tmp_path / "one")
    reference.save_pretrained(tmp_path / "many", max_shard_size="50KB")
    assert (tmp_path / "many" / "model.safetensors.index.json").exists()
    prompt = torch.arange(20)
    one, many = (run(load_model(tmp_path / name, weights="float32"), [prompt], [])[0] for name in ("one", "many"))
    assert torch.equal(one, many)


@pytest.mark.parametrize("weights", ["bf16", "auto"])
def test_rounded_weights_stay_near_float32(tmp_path, weights):
    reference = small_model("Qwen2", {"num_key_value_heads": 2})
    reference.save_pretrained(tmp_path)
    prompt = torch.arange(40)
    exact, rounded = (run(load_model(tmp_path, weights=mode), [prompt], [])[0] for mode in ("float32", weights))
    # bf16 and int8 are about 1 % a product; three layers of random weights, whose spread sets the scale.
    assert (rounded - exact).std() < 0.05 * exact.std()


def test_a_batch_invariant_model_gives_a_token_the_same_logits_alone_and_in_a_crowd(tmp_path):
    small_model("Llama", {"num_key_value_heads": 2}).save_pretrained(tmp_path)
    model = load_model(tmp_path, weights="auto", batch_invariant=True)
    prompts = [torch.arange(length) for length in (9, 9, 9, 9)]
    together = run(model, prompts, cuts=[1, 8])
    assert torch.equal(run(model, prompts[:1], cuts=[1, 8])[0], together[0])


@pytest.mark.parametrize("differs", [True, False])
def test_an_output_that_differs_from_the_embedding_is_used_although_the_config_ties_them(tmp_path, caplog, differs):
    """Fine-tuned models have one. It was left out, as if it were a copy."""
    reference = small_model("Qwen2", {"num_key_value_heads": 2})
    if not differs:
        reference.lm_head.weight.data.copy_(reference.model.embed_tokens.weight)
    reference.save_pretrained(tmp_path)
    edit_config(tmp_path, tie_word_embeddings=True)
    prompt = torch.arange(20)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    model = load_model(tmp_path, weights="float32")
    torch.testing.assert_close(run(model, [prompt], [7])[0], expected, atol=1e-4, rtol=0)
    assert model.config.tied_output is not differs
    assert ("ties the output to the embedding" in caplog.text) is differs


def test_code_that_a_folder_names_is_not_run(tmp_path, caplog):
    """Published folders of Phi-3 name some, though its architecture is known."""
    reference = small_model("Phi3", {"num_key_value_heads": 2, "pad_token_id": 0})
    reference.save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit")
    edit_config(tmp_path, auto_map={"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"})
    prompt = torch.arange(20)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    with caplog.at_level("INFO"):
        (logits,) = run(load_model(tmp_path, weights="float32"), [prompt], [7])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert "names code of its own (auto_map), which is never run" in caplog.text


def test_progress_runs_from_zero_to_one(tmp_path):
    small_model("Llama", {}).save_pretrained(tmp_path)
    heard = []
    load_model(tmp_path, weights="float32", progress=lambda phase, fraction: heard.append(fraction))
    assert heard == sorted(heard)
    assert (heard[0], heard[-1]) == (0.0, 1.0)


def edit_config(path, **changes):
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**values, **changes}))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"architectures": ["EvilForCausalLM"]}, "EvilForCausalLM.*no family here"),
        ({"architectures": None}, "architecture"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantised by 'aqlm' cannot be served; supported are awq"),
        ({"hidden_size": 1 << 40}, "hidden_size must be"),
        ({"hidden_size": 63}, "tensor 'model.* must have the shape"),
        ({"num_hidden_layers": 4}, "tensor 'model.layers.3.input_layernorm.weight' is missing"),
        ({"num_hidden_layers": 2}, "tensors that its architecture does not have"),
        ({"num_attention_heads": 0}, "num_attention_heads must be"),
        ({"num_key_value_heads": 3}, "cannot share"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be"),
        ({"hidden_act": "gelu"}, "hidden_act must be"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type must be one of"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "short_factor must be a list"),
        ({"rope_parameters": LONGROPE | {"long_factor": [2.0, "x"]}}, "long_factor must be a positive number"),
        ({"rope_parameters": LONGROPE | {"long_factor": [2.0]}}, "must have 8 numbers, got 1"),
        ({"rope_parameters": [1]}, "rope_parameters must be"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_with_the_reason(tmp_path, changes, what):
    small_model("Llama", {}).save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelLoadError, match=what):
        load_model(tmp_path, weights="float32")


def test_a_context_longer_than_the_models_is_refused(tmp_path):
    small_model("Llama", {}).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="max_model_len must be at most the model's context of 256, got 257"):
        load_model(tmp_path, max_model_len=257)
