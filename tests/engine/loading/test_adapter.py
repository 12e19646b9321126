"""Adapters that are not served are refused by the name of what is wrong."""

import json

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.loading.adapter import load_adapter
from engine.loading.loader import load_model
from tests.engine.loading.gguf_models import write_gguf
from tests.engine.lora import adapter_of, write_adapter
from tests.engine.random_model import random_model

PREFIX = "base_model.model.model.layers.0."


@pytest.fixture(scope="module")
def model():
    return random_model(seed=1)


@pytest.fixture(scope="module")
def targets(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return load_model(folder, weights="float32").adapter_targets


def refusal(folder, targets):
    with pytest.raises(ModelLoadError) as caught:
        load_adapter(folder, targets)
    return caught.value.message


FIELDS = {
    "another method": ({"peft_type": "IA3"}, "peft_type must be 'LORA', got 'IA3'"),
    "DoRA": ({"use_dora": True}, "use_dora is set (DoRA)"),
    "a bias of lora": ({"lora_bias": True}, "lora_bias is set"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save is set"),
    "a bias": ({"bias": "all"}, "bias must be 'none', got 'all'"),
    "replicated layers": ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication is set"),
    "a changed base": ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa' changes the base model too"),
    "no rank": ({"r": 0}, "r must be a positive number, got '0'"),
    "a rank of text": ({"r": "8"}, "r must be a positive number, got '8'"),
    "an infinite alpha": ({"lora_alpha": float("inf")}, "lora_alpha must be a positive number"),
    "a pattern of text": ({"rank_pattern": {"q_proj": "x"}}, "rank_pattern"),
    "no object": ({"alpha_pattern": [1]}, "alpha_pattern must be an object of numbers"),
    "no pattern": ({"rank_pattern": {"(": 4}}, "is no pattern of module names"),
    "a large rank": ({"r": 257}, "must be at most 256, got 257"),
    "another rank": ({"r": 5}, "must have the shape (5, 96), got (4, 96)"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_what_a_config_says_and_is_not_served_is_refused(tmp_path, model, targets, kind):
    change, message = FIELDS[kind]
    config, tensors = adapter_of(model, seed=0)
    assert message in refusal(write_adapter(tmp_path, config | change, tensors), targets)


TENSORS = {
    "an embedding": ("base_model.model.model.embed_tokens.lora_embedding_A", (4, 211), "changes of an embedding"),
    "a magnitude": (f"{PREFIX}self_attn.q_proj.lora_magnitude_vector", (64,), "DoRA"),
    "a whole module": ("base_model.model.lm_head.modules_to_save.weight", (211, 64), "modules_to_save"),
    "a bias": (f"{PREFIX}self_attn.q_proj.base_layer.bias", (64,), "a bias"),
    "something": ("extra", (1,), "something else"),
    "an unknown module": (f"{PREFIX}self_attn.z_proj.lora_A.weight", (4, 64), "'model.layers.0.self_attn.z_proj'"),
    "the output": ("base_model.model.lm_head.lora_A.weight", (4, 64), "served are down_proj, gate_proj, k_proj"),
    "a layer too many": ("base_model.model.model.layers.2.mlp.up_proj.lora_A.weight", (4, 64), "layers.2.mlp.up_proj"),
    "other inputs": (f"{PREFIX}mlp.down_proj.lora_A.weight", (4, 64), "must have the shape (4, 96), got (4, 64)"),
    "other outputs": (f"{PREFIX}mlp.down_proj.lora_B.weight", (32, 4), "must have the shape (64, 4), got (32, 4)"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_are_not_served_are_refused_by_name(tmp_path, model, targets, kind):
    name, shape, message = TENSORS[kind]
    config, tensors = adapter_of(model, seed=0)
    assert message in refusal(write_adapter(tmp_path, config, tensors | {name: torch.ones(shape)}), targets)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(tmp_path, model, targets, value):
    config, tensors = adapter_of(model, seed=0)
    tensors[f"{PREFIX}mlp.up_proj.lora_B.weight"][3, 1] = value
    assert "up_proj.lora_B.weight' holds NaN or infinite" in refusal(write_adapter(tmp_path, config, tensors), targets)


def test_half_a_module_is_refused(tmp_path, model, targets):
    config, tensors = adapter_of(model, seed=0)
    del tensors[f"{PREFIX}mlp.up_proj.lora_B.weight"]
    assert "has only one of lora_A and lora_B" in refusal(write_adapter(tmp_path, config, tensors), targets)


def test_folders_without_their_files_are_refused(tmp_path, model, targets):
    assert "holds no adapter_config.json" in refusal(tmp_path / "absent", targets)
    config, tensors = adapter_of(model, seed=0)
    folder = write_adapter(tmp_path, config, tensors)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "adapter_model.bin is pickled, which is never loaded" in refusal(folder, targets)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 16)
    assert "cannot be read as a safetensors file" in refusal(folder, targets)
    write_adapter(tmp_path, config, {})
    assert "holds no tensors" in refusal(folder, targets)
    (folder / "adapter_config.json").write_text(json.dumps([]))
    assert "must hold a JSON object" in refusal(folder, targets)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_read_as_what_they_say(tmp_path, model, targets, dtype):
    config, tensors = adapter_of(model, seed=0, modules=("down_proj",))
    halves = {name: values.to(dtype) for name, values in tensors.items()}
    weights = load_adapter(write_adapter(tmp_path, config, halves), targets)
    (part,) = weights.by_place[3]
    assert torch.equal(part.down, halves[f"{PREFIX}mlp.down_proj.lora_A.weight"].float())
    assert torch.equal(part.up, 2 * halves[f"{PREFIX}mlp.down_proj.lora_B.weight"].float())
    assert (weights.rank, weights.modules) == (4, ("down_proj",))


GGUF = {"llama": "Llama", "qwen2": "Qwen2", "phi3": "Phi3", "gemma2": "Gemma2", "glm4": "Glm4"}


@pytest.mark.parametrize("architecture", GGUF)
def test_an_adapter_changes_a_gguf_file_as_it_changes_the_folder(tmp_path, architecture):
    """In memory the rows of both have one order, whatever that of the file."""
    sizes = {"head_dim": 16, "pad_token_id": 0} if architecture in ("gemma2", "glm4", "phi3") else {}
    sizes |= {"tie_word_embeddings": True} if architecture == "gemma2" else {}
    model = random_model(GGUF[architecture], seed=1, **sizes)
    model.save_pretrained(tmp_path / "model")
    file = write_gguf(tmp_path / "model.gguf", model, architecture)
    modules = ("qkv_proj", "gate_up_proj") if architecture == "phi3" else ("q_proj", "k_proj", "v_proj", "down_proj")
    adapter = write_adapter(tmp_path / "adapter", *adapter_of(model, seed=0, modules=modules))
    found, expected = (
        load_adapter(adapter, load_model(path, weights="float32").adapter_targets)
        for path in (file, tmp_path / "model")
    )
    assert found.by_place.keys() == expected.by_place.keys()
    for place, parts in expected.by_place.items():
        for one, other in zip(found.by_place[place], parts, strict=True):
            assert (one is None) == (other is None)
            assert one is None or all(map(torch.equal, one, other))
