"""Architectures without a family of ours: logits against transformers, and refusals before weights are read."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.api.errors import ModelLoadError
from engine.loading.inspection import describe_model
from engine.loading.loader import load_model, open_checkpoint
from engine.models.registry import has_family
from engine.models.transformers_backend.parts import Table
from engine.models.transformers_backend.skeleton import Skeleton
from tests.engine.execution.test_cuda_graphs import Twins
from tests.engine.execution.test_runner import make_sequence
from tests.engine.models.test_decoder import LONGROPE, SIZES, edit_config, run, small_model
from tests.engine.tiny_tokenizer import write_tokenizer

EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
FOREIGN = {
    "cohere": ("Cohere", {"num_key_value_heads": 2, "logit_scale": 0.5, "use_qk_norm": True}),
    "cohere2, windows": ("Cohere2", {"num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 4}),
    "gemma, scaled embedding": ("Gemma", {"head_dim": 16}),
    "gemma 3n, shared keys": (
        "Gemma3nText",
        {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
        | {"num_key_value_heads": 2, "head_dim": 16, "laurel_rank": 8, "intermediate_size": [96] * 4}
        | {"activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0]}
        | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "sliding_window": 20, "pad_token_id": 0},
    ),
    "gemma 4, experts": (
        "Gemma4Text",
        {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
        | {"head_dim": 8, "global_head_dim": 16, "num_key_value_heads": 2, "num_global_key_value_heads": 1}
        | {"sliding_window": 20, "num_hidden_layers": 6, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    ),
    "gpt2, learned positions": ("GPT2", {}),
    "gpt neox, stacked": ("GPTNeoX", {}),
    "gpt oss, sinks and windows": ("GptOss", EXPERTS | {"head_dim": 16, "sliding_window": 20}),
    "mixtral": ("Mixtral", EXPERTS),
    "nemotron": ("Nemotron", {"num_key_value_heads": 2}),
    "olmo": ("Olmo", {}),
    "phi": ("Phi", {}),
    "qwen3 moe": ("Qwen3Moe", EXPERTS | {"moe_intermediate_size": 32, "head_dim": 16}),
    "qwen2 moe, a shared expert": ("Qwen2Moe", EXPERTS | {"moe_intermediate_size": 32}),
    "stablelm": ("StableLm", {}),
}


def saved(folder, name):
    reference = small_model(*FOREIGN[name])
    reference.save_pretrained(folder)
    return reference


@pytest.mark.parametrize("name", FOREIGN)
def test_logits_of_a_foreign_architecture_equal_those_of_transformers(tmp_path, name):
    """In a crowd and in pieces; one of the prompts has a single token."""
    reference = saved(tmp_path, name)
    model = load_model(tmp_path, weights="float32")
    assert model.backend == "transformers"
    prompts = [torch.randint(0, 96, (n,), generator=torch.Generator().manual_seed(n)) for n in (100, 1, 37)]
    for prompt, logits in zip(prompts, run(model, prompts, cuts=[1, 30, 31]), strict=True):
        with torch.inference_mode():
            expected = reference(prompt[None]).logits[0]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_a_model_with_more_than_its_family_describes_is_foreign():
    names = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")
    plain, larger = ({"architectures": [name], "text_config": {"enable_moe_block": False}} for name in names)
    assert has_family(plain)
    assert has_family(larger)
    assert not has_family(plain | {"enable_moe_block": True})
    assert not has_family(larger | {"text_config": {"enable_moe_block": True}})


@pytest.mark.parametrize("name", ["cohere", "gpt2, learned positions", "gpt oss, sinks and windows"])
def test_quantised_weights_of_a_foreign_architecture_stay_near_float32(tmp_path, name):
    saved(tmp_path, name)
    prompt = torch.arange(60)
    exact, rounded = (run(load_model(tmp_path, weights=mode), [prompt], [])[0] for mode in ("float32", "auto"))
    divergence = torch.nn.functional.kl_div(
        rounded.log_softmax(-1), exact.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert divergence < 0.02


def test_inspection_of_a_foreign_architecture_requires_its_tensors(tmp_path):
    """Mixtral's folder has the matrices of each expert apart."""
    saved(tmp_path, "mixtral")
    write_tokenizer(tmp_path)
    assert "MixtralForCausalLM, 3 layers of transformers, context 256" in describe_model(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    assert any(".experts.0.w1." in name for name in tensors)
    for name in ("lm_head.weight", "model.layers.1.self_attn.q_proj.weight"):
        save_file({other: values for other, values in tensors.items() if other != name}, file)
        with pytest.raises(ModelLoadError, match=f"tensor '{name}' is missing"):
            describe_model(tmp_path)
        save_file(tensors | {name: torch.ones(3)}, file)
        with pytest.raises(ModelLoadError, match=rf"tensor '{name}' must have the shape .*, got \(3,\)"):
            describe_model(tmp_path)
    save_file(tensors | {"model.layers.0.another.weight": torch.ones(3)}, file)
    with pytest.raises(ModelLoadError, match="holds 1 tensors that its architecture does not have: 'model.layers"):
        describe_model(tmp_path)
    save_file(tensors | {"embed_tokens.weight": torch.ones(3)}, file)
    with pytest.raises(ModelLoadError, match="'embed_tokens.weight' and 'model.embed_tokens.weight' are both"):
        describe_model(tmp_path)
    name = "model.layers.1.block_sparse_moe.experts.2.w1.weight"
    save_file({other: values for other, values in tensors.items() if other != name}, file)
    with pytest.raises(ModelLoadError, match="'model.layers.1.mlp.experts.gate_up_proj' cannot be made of 7 tensors"):
        describe_model(tmp_path)
    save_file({other: values for other, values in tensors.items() if ".w1." not in other}, file)
    with pytest.raises(ModelLoadError, match="'model.layers.0.mlp.experts.gate_up_proj' cannot be made of 4 tensors"):
        describe_model(tmp_path)


def test_masks_that_older_files_hold_are_left_out(tmp_path, caplog):
    """Those of GPT-2 have names without a prefix, the causal mask of each layer and the number of its hidden places."""
    saved(tmp_path, "gpt2, learned positions")
    file = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): values for name, values in load_file(file).items()}
    masks = {"h.0.attn.bias": torch.ones(1, 1, 8, 8), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file(tensors | masks, file)
    with caplog.at_level("INFO"):
        open_checkpoint(tmp_path)
    assert "1 tensors such as 'h.0.attn.bias' are left out, as by transformers" in caplog.text


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs Linux")
def test_a_loaded_model_does_not_keep_its_files_mapped(tmp_path):
    saved(tmp_path, "cohere")
    model = load_model(tmp_path, weights="float32")
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert model.backend == "transformers"


def foreign_config(folder, **changes):
    """Write a config.json beside tensors of no model, which is refused before they are looked at."""
    folder.joinpath("config.json").write_text(json.dumps(SIZES | changes))
    save_file({f"{number}": torch.ones(1) for number in range(64)}, folder / "model.safetensors")
    return folder


REFUSED = {
    "unknown": ({"architectures": ["EvilForCausalLM"], "model_type": "evil"}, "no causal model of transformers"),
    "no name": ({"architectures": None, "model_type": "cohere"}, "'None' cannot be served"),
    "own code": (
        {"architectures": ["EvilForCausalLM"], "model_type": "cohere", "auto_map": {"AutoConfig": "evil.Evil"}},
        "no causal model of transformers",
    ),
    "another head": ({"architectures": ["CohereModel"], "model_type": "cohere"}, "no causal model of transformers"),
    "a state": ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, "layers of the kind linear_attention"),
    "a convolution": (
        {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "layer_types": ["conv"] + 2 * ["full_attention"]},
        "layers of the kind conv",
    ),
    "latent attention": (
        {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 16},
        "latent attention",
    ),
    "an encoder": (
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True},
        "it has an encoder",
    ),
    "attention of its own": ({"architectures": ["GPTJForCausalLM"], "model_type": "gptj"}, "attention interface"),
    "chunked attention": (
        {"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "head_dim": 16},
        "layers of the kind chunked_attention",
    ),
    "too many layers": (
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_hidden_layers": 1 << 40},
        "num_hidden_layers must be at most 4096",
    ),
    "too many parts": (
        {"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text"}
        | FOREIGN["gemma 3n, shared keys"][1]
        | {"altup_num_inputs": 1 << 16},
        "it has more than 3048 parts, but its folder has 64 tensors",
    ),
    "more layers than tensors": (
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_hidden_layers": 65},
        "num_hidden_layers is 65, but the folder has 64 tensors in all",
    ),
    "positions that fill the memory": (
        {"architectures": ["XGLMForCausalLM"], "model_type": "xglm", "max_position_embeddings": 1 << 24},
        "its table model.embed_positions.weights has the shape .16777218, 64.; its description says",
    ),
    "heads that do not fit": (
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_attention_heads": 0},
        "transformers cannot",
    ),
    "no context": (
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "max_position_embeddings": None},
        "'max_position_embeddings' expected int",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
def test_what_the_backend_cannot_run_is_refused_by_name_before_weights_are_read(tmp_path, name):
    changes, problem = REFUSED[name]
    with pytest.raises(ModelLoadError, match=problem):
        open_checkpoint(foreign_config(tmp_path, **changes))


REFUSED_WHEN_RUN = {
    "a number that is none": ({"logit_scale": float("nan")}, "its layers compute none that are finite"),
    "longrope of no context": (
        {"rope_parameters": LONGROPE | {"original_max_position_embeddings": -5}},
        "original_max_position_embeddings must be at least 1, got -5",
    ),
}


@pytest.mark.parametrize("name", REFUSED_WHEN_RUN)
def test_what_shows_when_the_layers_run_without_weights_is_refused_by_name(tmp_path, name):
    changes, problem = REFUSED_WHEN_RUN[name]
    small_model("Cohere", {}).save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelLoadError, match=problem):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"])
@pytest.mark.parametrize("value", [1 << 12, 1 << 24])
def test_a_size_that_the_tensors_do_not_have_is_refused_before_the_layers_run(tmp_path, monkeypatch, name, value):
    """Hidden states of 2^24 numbers took half a minute and 5 GiB to compute."""
    small_model("GPTNeoX", {}).save_pretrained(tmp_path)
    edit_config(tmp_path, **{name: value})
    monkeypatch.setattr(Skeleton, "describe", lambda self: pytest.fail("ran"))
    said = f"its description says {name} {value}|{name} must be at most 4096|hidden size .* attention heads"
    with pytest.raises(ModelLoadError, match=said):
        open_checkpoint(tmp_path)


def test_the_log_names_the_architecture_and_the_backend(tmp_path, caplog):
    small_model("Cohere", {}).save_pretrained(tmp_path)
    with caplog.at_level("INFO"):
        open_checkpoint(tmp_path)
    assert "describes this CohereForCausalLM; it is run by the layers of transformers 5." in caplog.text


def test_a_config_does_not_choose_what_computes_the_model(tmp_path):
    """transformers would fetch such implementations from elsewhere."""
    small_model("Mixtral", EXPERTS).save_pretrained(tmp_path)
    names = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
    edit_config(tmp_path, **dict.fromkeys(names, "somebody/kernels"), use_kernels=True)
    config = open_checkpoint(tmp_path)[0]._skeleton.model.config
    assert (config._attn_implementation, config._experts_implementation) == ("lightcone", "eager")


def test_longrope_of_some_layers_ends_the_context_too():
    _, changes = FOREIGN["gemma 3n, shared keys"]
    rope = {"full_attention": LONGROPE | {"original_max_position_embeddings": 64}}
    rope["sliding_attention"] = {"rope_type": "default", "rope_theta": 1e4}
    config = SIZES | changes | {"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text"}
    skeleton = Skeleton("config.json", config | {"rope_parameters": rope}, num_tensors=99)
    assert skeleton.describe().max_position == 64


def test_a_rotation_may_have_a_base_beyond_any_size():
    """Command R+ has 75 million; an integer of that size was refused as one of layers would be."""
    config = SIZES | {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "rope_theta": 75_000_000}
    skeleton = Skeleton("config.json", config, num_tensors=99)
    assert skeleton.model.config.rope_parameters["rope_theta"] == 75_000_000


def test_longrope_ends_where_it_depends_on_the_longest_context_of_a_step(tmp_path, caplog):
    small_model("Cohere", {}).save_pretrained(tmp_path)
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    edit_config(tmp_path, rope_parameters=rope | {"original_max_position_embeddings": 64})
    assert open_checkpoint(tmp_path)[1].max_position == 64
    assert "the context is 64 of 256 tokens" in caplog.text


def test_a_model_that_passes_something_from_token_to_token_beside_attention_is_refused(tmp_path, monkeypatch):
    from transformers.models.cohere.modeling_cohere import CohereMLP

    small_model("Cohere", {}).save_pretrained(tmp_path)
    monkeypatch.setattr(CohereMLP, "forward", lambda self, x: x.roll(1, -2))
    with pytest.raises(ModelLoadError, match="from token to token beside attention"):
        open_checkpoint(tmp_path)


def test_experts_whose_matrices_are_not_multiplied_by_are_refused(tmp_path, monkeypatch):
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    saved(tmp_path, "mixtral")
    monkeypatch.setattr(MixtralExperts, "forward", lambda self, x, *routes: torch.relu(self.gate_up_proj[0]))
    with pytest.raises(ModelLoadError, match="its layers do not run with an attention of ours: TypeError"):
        open_checkpoint(tmp_path)


def test_batch_invariant_mode_is_refused(tmp_path):
    small_model("Cohere", {}).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="batch_invariant is not offered for CohereForCausalLM"):
        load_model(tmp_path, batch_invariant=True)


@pytest.mark.slow
@pytest.mark.interpreted
def test_the_cuda_path_gives_the_logits_of_the_cpu(tmp_path, monkeypatch):
    """A prompt in two chunks, then steps of single rows. Windows as long as the context leave one cache group."""
    family, changes = FOREIGN["gpt oss, sinks and windows"]
    small_model(family, changes | {"sliding_window": 256, "vocab_size": 211}).save_pretrained(tmp_path)
    twins = Twins(tmp_path, monkeypatch)
    a, b = make_sequence(1, 30, [7, 3]), make_sequence(2, 9, [5])
    for sequence in (a, b):
        twins.prefill(sequence)
        sequence.output_ids.append(sequence.num_tokens)
    twins.decode([a, b])


TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize("kept", [[TABLE], [HEAD], [TABLE, HEAD]])
def test_a_table_that_the_output_shares_is_found_under_either_name(tmp_path, kept):
    reference = small_model("Cohere", {"tie_word_embeddings": True})
    reference.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    table = tensors.pop(TABLE)
    save_file(tensors | {name: table.clone() for name in kept}, tmp_path / "model.safetensors")
    prompt = torch.arange(20)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    (logits,) = run(load_model(tmp_path, weights="float32"), [prompt], [])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", ["Cohere", "GPT2"])
def test_an_output_that_differs_from_the_embedding_is_used_although_the_config_ties_them(tmp_path, caplog, family):
    """Fine-tuned models have one. It was left out, as if it were a copy."""
    reference = small_model(family, {"tie_word_embeddings": False})
    reference.save_pretrained(tmp_path)
    edit_config(tmp_path, tie_word_embeddings=True)
    prompt = torch.arange(20)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    (logits,) = run(load_model(tmp_path, weights="float32"), [prompt], [])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert "ties the output to the embedding" in caplog.text


def test_the_text_part_of_a_larger_model_of_the_same_family_is_served(tmp_path, caplog):
    """Gemma 3n with a tower: its folder is that of the text model under other names, and more."""
    reference = saved(tmp_path, "gemma 3n, shared keys")
    text = json.loads((tmp_path / "config.json").read_text())
    larger = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(larger | {"tie_word_embeddings": text["tie_word_embeddings"]}))
    assert isinstance(open_checkpoint(tmp_path)[0]._skeleton.model.model.embed_tokens_per_layer, Table)
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    save_file(renamed | {"model.vision_tower.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    prompt = torch.arange(40)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    with caplog.at_level("INFO"):
        (logits,) = run(load_model(tmp_path, weights="float32"), [prompt], [])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert "1 tensors of parts that are not served are left out" in caplog.text


@pytest.mark.parametrize("weights", ["auto", "float32"])
def test_numbers_that_are_not_finite_are_refused_by_the_name_of_their_tensor(tmp_path, weights):
    saved(tmp_path, "mixtral")
    tensors = load_file(tmp_path / "model.safetensors")
    for name in ("model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"):
        broken = tensors[name].clone()
        broken.view(-1)[-1] = torch.nan
        save_file(tensors | {name: broken}, tmp_path / "model.safetensors")
        with pytest.raises(ModelLoadError, match=f"tensor '{name}' holds numbers that are not finite"):
            load_model(tmp_path, weights=weights)
    expert = "model.layers.2.block_sparse_moe.experts.3.w2.weight"
    save_file(tensors | {expert: tensors[expert] * torch.inf}, tmp_path / "model.safetensors")
    with pytest.raises(
        ModelLoadError, match="tensor 'model.layers.2.mlp.experts.down_proj' holds numbers that are not"
    ):
        load_model(tmp_path, weights=weights)


def test_tensors_of_another_part_are_left_out_only_if_the_config_describes_it(tmp_path, caplog):
    saved(tmp_path, "cohere")
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"vision_tower.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match="tensors that its architecture does not have: 'vision_tower.norm.weight'"):
        open_checkpoint(tmp_path)
    edit_config(tmp_path, vision_config={"hidden_size": 3})
    with caplog.at_level("INFO"):
        open_checkpoint(tmp_path)
    assert "1 tensors of parts that are not served are left out" in caplog.text


def test_what_chooses_experts_stays_exact(tmp_path):
    """A matrix with one output weighs the shared expert, in each of 3 layers."""
    saved(tmp_path, "qwen2 moe, a shared expert")
    layer = open_checkpoint(tmp_path)[0]._skeleton.model.model.layers[0].mlp
    assert type(layer.shared_expert_gate) is torch.nn.Linear
    assert type(layer.shared_expert.up_proj) is not torch.nn.Linear
