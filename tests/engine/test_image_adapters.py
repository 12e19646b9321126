"""A model that sees by an adapter (Phi-4-multimodal) has it for requests with images, and for no others."""

from __future__ import annotations

import base64
import io
import json
import shutil
import threading

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.api import ModelLoadError, RawPrompt, Rejected, RequestError
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.loading.safetensors_file import read_part
from engine.media.phi_images import PhiImages
from engine.model_kind import read_purpose
from engine.models.transformers_backend.phi_media_encoder import PREFIX, PhiMediaEncoder
from tests.engine.lora import adapter_of, greedy_tokens, merged, write_adapter
from tests.engine.real_engine import RealEngine
from tests.engine.seeing_folders import PHI_MODULES, PHI_SQUARES, image_of, write_seeing
from tests.engine.test_images import CONVERSATIONS, GREEDY, NUM_TOKENS, engine_messages, expected, token_ids

PROMPT = list(range(5, 45))
IMAGE = image_of(40, 30, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("phi")


@pytest.fixture(scope="module")
def written(folder):
    """The model and the processor of transformers."""
    return write_seeing(folder, "phi4_multimodal")


@pytest.fixture(scope="module")
def served(folder, written):
    engine = RealEngine(folder, max_num_batched_tokens=24)
    yield engine
    engine.close()


def last_payload(engine, **request):
    engine.submit("run", **{**GREEDY, **request})
    return engine.events_to_end("run")["run"][-1].payload


def test_an_adapter_of_its_own_name_changes_text_and_is_refused_beside_images(served, written, tmp_path):
    config, tensors = adapter_of(written[0].model, seed=9, modules=PHI_MODULES)
    tensors = {name: tensor for name, tensor in tensors.items() if "model.layers." in name}
    served.engine.add_adapter("own", write_adapter(tmp_path / "own", config, tensors))
    assert [adapter.name for adapter in served.engine.adapters()] == ["own"]
    raw = {"raw": RawPrompt(token_ids=tuple(PROMPT)), "messages": ()}
    for adapter, model in (("own", merged(written[0].model, config, tensors)), (None, written[0].model)):
        served.submit("run", **raw, **GREEDY, adapter=adapter)
        assert token_ids(served.events_to_end("run")["run"]) == greedy_tokens(model, PROMPT, NUM_TOKENS)
    found = last_payload(served, messages=engine_messages([["look ", IMAGE]]), adapter="own")
    assert isinstance(found, Rejected)
    assert found.param == "adapter"
    assert "'own' cannot be combined with images" in found.message
    served.engine.remove_adapter("own")
    with pytest.raises(RequestError, match="not loaded"):
        served.engine.remove_adapter("own")


def test_what_was_said_before_an_image_is_computed_anew_once_there_is_one(served, written):
    words = "a few words that fill some blocks of the cache, which the model has read without its adapter; "
    cached = []
    for parts in ([words], [words], [words, IMAGE], [words, IMAGE]):
        served.submit("run", messages=engine_messages([parts]), tenant="prefixes", **GREEDY)
        events = served.events_to_end("run")["run"]
        assert token_ids(events) == expected(*written, [parts])[1]
        cached.append(events[-1].payload.usage.cached_tokens)
    assert cached[0] == cached[2] == 0
    assert cached[1] > 0
    assert cached[3] > len(words) // 8


def test_vectors_of_an_image_are_seen_by_the_adapter_too(served, folder, written):
    device = torch.device("cpu")
    encoder = PhiMediaEncoder.load(folder, read_part(folder, PREFIX), device, torch.float32)
    _, made = PhiImages("*", side=28, patch=7, most_squares=PHI_SQUARES).prepare(IMAGE, 1, {})
    file = io.BytesIO()
    numpy.save(file, encoder.encode(made).vectors.numpy())
    vectors = {"type": "image", "is_vectors": True, "data": base64.b64encode(file.getvalue()).decode(), "param": "x"}
    parts = [{"type": "text", "text": "hello"}, vectors]
    served.submit("run", messages=({"role": "user", "content": parts},), **GREEDY)
    assert token_ids(served.events_to_end("run")["run"]) == expected(*written, [["hello", IMAGE]])[1]


def test_a_core_that_replaces_a_dead_one_sees_by_it_too(folder, written):
    served = RealEngine(folder, max_num_batched_tokens=24)
    restarted = threading.Event()
    served.engine._on_restarted = restarted.set
    served.engine._link.close(30.0)
    assert restarted.wait(60)
    served.submit("run", messages=engine_messages([["look ", IMAGE]]), **GREEDY)
    assert token_ids(served.events_to_end("run")["run"]) == expected(*written, [["look ", IMAGE]])[1]
    served.close()


def test_the_adapter_counts_to_the_memory_of_the_model(folder, written):
    need = memory_need(EngineConfig(folder, "seeing", weights="float32", kv_cache_bytes=4 << 20))
    adapter = sum(tensor.nbytes for tensor in load_file(folder / "vision-lora/adapter_model.safetensors").values())
    model = sum(tensor.nbytes for tensor in written[0].model.state_dict().values())
    assert need.weights_bytes == model + adapter


def test_without_its_adapter_a_folder_reads_text(tmp_path):
    write_seeing(tmp_path, "phi4_multimodal")
    assert read_purpose(tmp_path).modalities == ["image"]
    (tmp_path / "vision-lora").rename(tmp_path / "elsewhere")
    assert read_purpose(tmp_path).modalities == []


def test_a_folder_whose_adapter_cannot_be_read_is_refused_by_name(tmp_path, make_real_engine):
    write_seeing(tmp_path, "phi4_multimodal")
    (tmp_path / "vision-lora" / "adapter_model.safetensors").write_bytes(b"not this")
    with pytest.raises(ModelLoadError, match=r"vision-lora/adapter_model.safetensors: cannot be read"):
        make_real_engine(tmp_path)


def write_makers_layout(folder, target):
    """Write a folder of transformers as the makers of Phi-4-multimodal have theirs: other names, and their template."""
    shutil.copytree(folder, target)
    values = json.loads((folder / "config.json").read_text())
    adapter = load_file(folder / "vision-lora" / "adapter_model.safetensors")
    others = {"architectures": ["Phi4MMForCausalLM"], "model_type": "phi4mm", "embd_layer": {"embedding_cls": "x"}}
    del values["audio_config"]
    (target / "config.json").write_text(json.dumps(values | others | {"auto_map": {"AutoConfig": "a.B"}}))
    names = {
        "image_embed.global_img_feature_extensor": "image_embed.glb_GN",
        "image_embed.sub_img_feature_extensor": "image_embed.sub_GN",
        "image_embed.img_projection_up": "image_embed.img_projection.0",
        "image_embed.img_projection_down": "image_embed.img_projection.2",
    }
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if f"base_model.model.{module}.lora_A.weight" in adapter:
            tensors[f"{module}.base_layer.weight"] = tensor
            for half in "AB":
                lora = adapter[f"base_model.model.{module}.lora_{half}.weight"]
                tensors |= {f"{module}.lora_{half}.{kind}.weight": lora.clone() for kind in ("speech", "vision")}
            continue
        for other, makers in names.items():
            name = name.replace(other, makers)
        tensors[name] = tensor
    save_file(tensors, target / "model.safetensors")
    (target / "chat_template.jinja").write_text(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def test_the_layout_of_the_makers_own_code_answers_alike(folder, written, tmp_path, make_real_engine):
    write_makers_layout(folder, tmp_path / "makers")
    engine = make_real_engine(tmp_path / "makers", max_num_batched_tokens=24)
    for conversation in CONVERSATIONS:
        prompt, answer = expected(*written, conversation)
        engine.submit("run", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("run")["run"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    need = memory_need(EngineConfig(tmp_path / "makers", "makers", weights="float32", kv_cache_bytes=4 << 20))
    other = memory_need(EngineConfig(folder, "seeing", weights="float32", kv_cache_bytes=4 << 20))
    assert need.weights_bytes == other.weights_bytes
