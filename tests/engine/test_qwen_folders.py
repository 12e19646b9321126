"""Qwen-VL as its maker publishes it, under memory pressure, and what its encoder counts."""

from __future__ import annotations

import dataclasses
import json

import pytest
from safetensors.torch import load_file, save_file

from engine.api import SamplingParams, StopRules
from engine.api.media import MediaLimits
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.model_kind import read_purpose
from tests.engine.real_engine import RealEngine
from tests.engine.seeing_folders import image_of, write_seeing
from tests.engine.test_images import GREEDY, engine_messages, token_ids

SEEN = engine_messages([["hello", image_of(64, 48, 1), " what is it?"]])


def answer(folder):
    engine = RealEngine(folder, max_num_batched_tokens=24)
    try:
        engine.submit("run", messages=SEEN, **GREEDY)
        return token_ids(engine.events_to_end("run")["run"])
    finally:
        engine.close()


def as_published(folder, kind):
    """Write a folder of Qwen2-VL as it was published: one object describes all, and the text model has no prefix."""
    file = folder / "model.safetensors"
    renamed = {}
    for name, tensor in load_file(file).items():
        short = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        renamed[short] = tensor.contiguous()
    assert {name.split(".")[0] for name in renamed} == {"model", "visual", "lm_head"}
    save_file(renamed, file, metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    text = values.pop("text_config")
    rope = text.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    values = {**text, **values, "model_type": kind, "rope_theta": rope["rope_theta"], "rope_scaling": scaling}
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl"])
def test_a_folder_as_it_was_published_answers_as_a_newer_one(tmp_path, kind):
    write_seeing(tmp_path, kind)
    expected = answer(tmp_path)
    as_published(tmp_path, kind)
    assert read_purpose(tmp_path).modalities == ["image", "video"]
    assert answer(tmp_path) == expected


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl"])
def test_the_encoder_counts_to_the_memory_of_a_model(tmp_path, kind):
    model, _ = write_seeing(tmp_path, kind)
    need = memory_need(EngineConfig(tmp_path, "seeing", weights="float32", kv_cache_bytes=4 << 20))
    assert need.weights_bytes == sum(parameter.nbytes for parameter in model.parameters())


def test_smaller_images_leave_more_memory(tmp_path):
    write_seeing(tmp_path, "qwen3_vl")
    config = EngineConfig(tmp_path, "seeing", weights="float32", kv_cache_bytes=4 << 20)
    large, small = (
        memory_need(dataclasses.replace(config, media=MediaLimits(max_image_tokens=most))) for most in (1280, 320)
    )
    assert large.media_bytes == 4 * small.media_bytes


def test_answers_that_are_preempted_stay_the_same(tmp_path, make_real_engine):
    """Blocks that are computed again hold keys that turn by the same places."""
    write_seeing(tmp_path, "qwen3_vl")
    options = {"sampling": SamplingParams(temperature=0.0), "stop": StopRules(max_tokens=80, ignore_eos=True)}
    prompts = [engine_messages([[f"say {number} of ", image_of(64, 48, number)]]) for number in range(4)]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    alone = []
    for messages in prompts:
        engine.submit("alone", messages=messages, **options)
        alone.append(token_ids(engine.events_to_end("alone")["alone"]))
    tight = make_real_engine(tmp_path, max_num_batched_tokens=24, max_model_len=256, kv_cache_bytes=256 << 10)
    for messages in prompts:  # once their images are encoded, all begin at the same time
        tight.submit("seen", messages=messages, **options | {"stop": StopRules(max_tokens=1)})
        tight.events_to_end("seen")
    for number, messages in enumerate(prompts):
        tight.submit(str(number), messages=messages, **options)
    crowd = tight.events_to_end(*map(str, range(len(prompts))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == alone
    assert tight.core_stats().num_preemptions > 0
