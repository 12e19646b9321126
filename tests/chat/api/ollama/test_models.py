"""Lists of models, and what they say of a model's files."""

import json
import struct
from pathlib import Path

import pytest

from chat.catalog.model_choice import model_choice
from chat.catalog.model_facts import ModelFacts, model_facts
from chat.relay.state.workers import ModelCondition
from tests.chat.api.ollama.conftest import WEIGHTS

DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "",
    "quantization_level": "Q4_K_M",
}


async def test_every_name_is_listed_with_the_facts_of_the_store(installed):
    body = (await installed.api.get("/api/tags")).json()
    assert (
        [model["name"] for model in body["models"]] == [model["model"] for model in body["models"]] == ["base", "gpt"]
    )
    model = body["models"][0]
    manifest = installed.store.get("base")
    assert (model["size"], model["details"]) == (len(WEIGHTS), DETAILS)
    assert model["modified_at"][:19] == manifest.created_at[:19]
    assert len(bytes.fromhex(model["digest"])) == 32


async def test_a_key_sees_its_own_models_only(installed):
    assert (await installed.api.get("/api/tags", headers={"Authorization": ""})).status_code == 401
    assert (await installed.api.get("/api/tags", headers=installed.user)).status_code == 200


async def test_loaded_models_are_those_with_a_worker(installed):
    assert (await installed.api.get("/api/ps")).json() == {"models": []}
    installed.conditions["base"] = ModelCondition("ready", max_model_len=2048)
    [model] = (await installed.api.get("/api/ps")).json()["models"]
    assert (model["name"], model["size_vram"], model["context_length"]) == ("base", 0, 2048)
    assert model["expires_at"].startswith("9999-")


@pytest.mark.parametrize("body", [{"model": "base"}, {"name": "gpt"}, {"model": "base:latest", "verbose": True}])
async def test_a_model_is_shown(installed, body):
    shown = (await installed.post("show", **body)).json()
    assert shown["details"] == DETAILS
    assert (shown["license"], shown["capabilities"]) == ("mit", ["completion", "tools"])
    assert shown["modelfile"] == "FROM base\n"


async def test_a_model_that_is_not_named_or_not_there_is_not_shown(installed):
    assert (await installed.post("show")).json()["error"] == "model is required: name a model"
    assert (await installed.post("show", model="none")).status_code == 404


async def test_the_version_is_that_of_the_api(installed):
    body = (await installed.api.get("/api/version")).json()
    assert tuple(map(int, body["version"].split("."))) >= (0, 6, 4)  # what editors ask for
    assert (await installed.api.head("/api/version")).status_code == 200


def test_the_facts_of_a_gguf_file_are_read_from_its_head():
    facts = model_facts(str(model_choice(path="", name="").path))
    assert (facts.format, facts.architecture, facts.quantization) == ("gguf", "llama", "Q4_1")
    assert (facts.context, facts.num_layers, facts.width) == (8192, 30, 576)
    assert facts.parameter_size == "134.5M"
    assert "<|im_start|>" in facts.template
    assert (facts.has_tools, facts.thinks) == (False, False)


def safetensors(file: Path, **shapes: list[int]) -> None:
    head = {name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)


def test_the_facts_of_a_folder_are_read_from_its_json(tmp_path):
    config = {"model_type": "qwen3", "dtype": "bfloat16", "max_position_embeddings": 4096}
    config |= {"num_hidden_layers": 2, "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    template = "{% if tools %}{% endif %}{% if enable_thinking %}{% endif %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    safetensors(tmp_path / "model-1.safetensors", a=[1000, 64], b=[64])
    safetensors(tmp_path / "model-2.safetensors", c=[1000, 64])
    facts = model_facts(str(tmp_path))
    assert (facts.format, facts.architecture, facts.quantization) == ("safetensors", "qwen3", "bfloat16")
    assert (facts.num_parameters, facts.parameter_size) == (128_064, "128.1K")
    assert (facts.template, facts.has_tools, facts.thinks) == (template, True, True)
    before = facts.digest
    safetensors(tmp_path / "model-2.safetensors", c=[1000, 65])
    assert model_facts(str(tmp_path)).digest != before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.gguf", b"GGUF"),
        ("model.gguf", b""),
        ("config.json", b"[]"),
        ("config.json", b"{"),
        ("config.json", b"{}"),
    ],
)
def test_files_that_say_nothing_leave_the_facts_empty(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 16)
    facts = model_facts(str(tmp_path / name if name.endswith(".gguf") else tmp_path))
    assert (facts.format, facts.architecture) == ("", "")
    assert facts.digest


def test_a_model_of_another_machine_has_no_facts():
    assert model_facts("/nowhere/model.gguf") == ModelFacts()


@pytest.mark.parametrize(
    ("facts", "capabilities"),
    [
        (ModelFacts(), ["completion"]),
        (ModelFacts(has_tools=True, thinks=True), ["completion", "tools", "thinking"]),
        (ModelFacts(kind="embedding"), ["embedding"]),
        (ModelFacts(kind="reranker", has_tools=True), []),
    ],
)
def test_capabilities_follow_from_the_kind_and_the_template(facts, capabilities):
    assert facts.capabilities == capabilities
