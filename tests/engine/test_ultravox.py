"""Answers of Ultravox equal those of its parts on the same float32 weights: alone, in a crowd, in small chunks."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from engine.api import Rejected
from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.core.model_description import describe
from engine.loading.inspection import describe_model
from engine.loading.tower_size import read_sounds
from engine.media.sound_inputs import answer
from engine.model_kind import read_purpose
from engine.models.transformers_backend.media_config import sound_config
from engine.models.transformers_backend.ultravox_encoder import UltravoxEncoder
from engine.ultravox_folder import STORED_FORMAT
from tests.engine.hearing_folders import sound_of
from tests.engine.loading.quantized_folders import FORMATS, write_quantized
from tests.engine.loading.test_tower_size import PeakBytes
from tests.engine.seeing_folders import write_seeing
from tests.engine.test_hearing import engine_messages, vectors_part
from tests.engine.test_images import GREEDY, NUM_TOKENS, token_ids
from tests.engine.ultravox_folders import BANDS, WINDOW_FRAMES, WINDOW_S, write_ultravox

LONG = sound_of(2 * WINDOW_S + 0.77, 4)
CONVERSATIONS = [
    [["hello", sound_of(0.7, 1), " what is it?"]],
    [[sound_of(1.93, 2), sound_of(0.7, 1), "compare"]],
    [["a word"]],
    [[sound_of(0.7, 1), "first"], ["second ", sound_of(1.0, 3)]],
    [["long ", LONG, " end"]],
]
"""The parts of each message of the user."""
VERSIONS = {
    "v0.5": {},
    "v0.4": {"has_middle_norm": False, "special": ("<|reserved_special_token_0|>",)},
    "relu": {"act": "relu"},
    "named": {"holds": ()},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_parts(tmp_path, make_real_engine, version):
    model = write_ultravox(tmp_path / "ultravox", **VERSIONS[version])
    found = [model.expected(conversation, NUM_TOKENS) for conversation in CONVERSATIONS]
    assert len({tuple(answered) for _, answered in found}) == len(found)
    engine = make_real_engine(tmp_path / "ultravox", max_num_batched_tokens=24)
    for conversation, (num_rows, answered) in zip(CONVERSATIONS, found, strict=True):
        engine.submit("alone", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert events[0].payload.num_prompt_tokens == num_rows
        assert token_ids(events) == answered
    for number, conversation in enumerate(CONVERSATIONS * 2):
        engine.submit(str(number), messages=engine_messages(conversation), **GREEDY)
    crowd = engine.events_to_end(*(str(number) for number in range(2 * len(CONVERSATIONS))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == [answered for _, answered in found * 2]
    usage = crowd["4"][-1].payload.usage
    assert (usage.audio_tokens, usage.cached_tokens > 0) == (13 + 13 + 5, True)


def test_vectors_of_a_sound_answer_as_the_sound_does(tmp_path, make_real_engine):
    model = write_ultravox(tmp_path)
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    content = [vectors_part(model.vectors(LONG).numpy()), {"type": "text", "text": " what is it?"}]
    engine.submit("sound", messages=engine_messages([[LONG, " what is it?"]]), **GREEDY)
    engine.submit("vectors", messages=({"role": "user", "content": content},), **GREEDY)
    found = engine.events_to_end("sound", "vectors")
    assert token_ids(found["vectors"]) == token_ids(found["sound"])
    usages = [found[name][-1].payload.usage for name in ("sound", "vectors")]
    assert usages[0].audio_tokens == usages[1].audio_tokens == 31


@pytest.mark.parametrize("text", ["<|audio|>", "<|reserved_special_token_0|>"])
def test_a_placeholder_that_somebody_writes_is_text(tmp_path, make_real_engine, text):
    model = write_ultravox(tmp_path, special=(text,))
    sound = sound_of(0.7, 1)
    engine = make_real_engine(tmp_path)
    lengths = []
    for parts in (["what is ", sound, "?"], ["what is ", sound, f"{text}?"]):
        engine.submit("run", messages=engine_messages([parts]), **GREEDY)
        lengths.append(engine.events_to_end("run")["run"][0].payload.num_prompt_tokens)
    assert lengths[1] >= lengths[0] + len(text) / 2
    assert lengths[0] == model.expected([["what is ", sound, "?"]], 1)[0]


def test_a_template_that_takes_parts_without_sounds_has_them_in_the_text(tmp_path, make_real_engine):
    write_ultravox(tmp_path)
    messages, found = engine_messages([["hello ", sound_of(0.7, 1), "what?"]]), []
    for template in ("{{ message.content }}", "{% for part in message.content %}{{ part.text }}{% endfor %}"):
        around = "{% for message in messages %}<|im_start|>CONTENT<|im_end|>{% endfor %}".replace("CONTENT", template)
        (tmp_path / "chat_template.jinja").write_text(around)
        engine = make_real_engine(tmp_path)
        engine.submit("run", messages=messages, **GREEDY)
        found.append(token_ids(engine.events_to_end("run")["run"]))
    assert found[0] == found[1]


def test_a_sound_that_is_too_short_is_refused(tmp_path, make_real_engine):
    write_ultravox(tmp_path)
    engine = make_real_engine(tmp_path)
    engine.submit("run", messages=engine_messages([[sound_of(0.05)]]), **GREEDY)
    (event,) = engine.events_to_end("run")["run"]
    assert isinstance(event.payload, Rejected)
    assert "at least 0.1 seconds" in event.payload.message


@pytest.mark.parametrize("holds", [("text", "audio"), ()], ids=["held", "named"])
def test_the_memory_and_the_kind_are_known_before_weights_are_read(tmp_path, holds):
    model = write_ultravox(tmp_path / "ultravox", holds=holds)
    need = memory_need(EngineConfig(tmp_path / "ultravox", "u", weights="float32", kv_cache_bytes=4 << 20))
    parts = (*model.text.parameters(), *model.encoder.values(), *model.projector.values())
    assert need.weights_bytes == sum(one.nbytes for one in parts)
    assert need.media_bytes > 0
    assert read_purpose(tmp_path / "ultravox").modalities == ["audio"]
    assert "context 2048" in describe_model(tmp_path / "ultravox")
    assert describe(tmp_path / "ultravox").context == 2048


def test_a_window_takes_no_more_than_is_planned(tmp_path):
    model = write_ultravox(tmp_path)
    tensors = {f"audio_tower.{name}": tensor for name, tensor in model.encoder.items()}
    tensors |= {f"multi_modal_projector.{name}": tensor for name, tensor in model.projector.items()}
    encoder = UltravoxEncoder.load(tmp_path, tensors, torch.device("cpu"), torch.float32)
    sound = {
        "input_features": torch.zeros(2, BANDS, WINDOW_FRAMES),
        "frame_lengths": torch.tensor([WINDOW_FRAMES, WINDOW_FRAMES // 2]),
    }
    passed = []
    encoder.call_between_parts(lambda: passed.append(True))
    with PeakBytes([sound["input_features"][0]]) as peak:
        encoder.encode(sound)
    assert len(passed) > 2 * (2 + 2 * 8 + 3)  # of each window: convolutions, layers, projector
    planned = read_sounds(tmp_path, 30).step_bytes(1, torch.float32)
    assert planned / 8 < peak.most <= planned


@pytest.mark.parametrize("part", ["Tiny-Llama", "whisper-tiny"])
def test_a_part_that_is_not_there_is_named_with_what_to_do(tmp_path, part):
    write_ultravox(tmp_path / "ultravox", holds=())
    shutil.rmtree(tmp_path / part)
    named = {"Tiny-Llama": "meta-llama/Tiny-Llama", "whisper-tiny": "openai/whisper-tiny"}[part]
    for check in (read_purpose, describe_model, describe, lambda path: memory_need(EngineConfig(path, "u"))):
        with pytest.raises(ModelLoadError) as caught:
            check(tmp_path / "ultravox")
        assert f"names {named}" in caught.value.message
        assert f"manage.py model pull {named}" in caught.value.message
        assert str(tmp_path / part) in caught.value.message


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("ultravox", "ultravox/Tiny-Llama"),
        ("ultravox/files", "Tiny-Llama/files"),
        ("ultravox/files", f"Tiny-Llama%3A{STORED_FORMAT}/files"),
        (".work/new/ultravox/files", "meta-llama%2FTiny-Llama/files"),
    ],
)
def test_parts_are_found_in_the_folder_and_in_the_store(tmp_path, whole, part):
    write_ultravox(tmp_path / "made" / "whole", holds=("audio",))
    root = tmp_path / "store"
    for made, place in (("whole", whole), ("Tiny-Llama", part)):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / made).rename(root / place)
    assert "context 2048" in describe_model(root / whole)
    shutil.rmtree(root / part)
    with pytest.raises(ModelLoadError, match="which is not on this machine") as caught:
        describe_model(root / whole)
    assert ("beside this one" in caught.value.message) == (whole == "ultravox")


def test_the_text_model_within_a_larger_one_is_taken_out_of_it(tmp_path):
    model = write_ultravox(tmp_path / "ultravox", holds=("audio",))
    shutil.rmtree(tmp_path / "Tiny-Llama")
    (tmp_path / "Tiny-Llama").mkdir()
    larger, _ = write_seeing(tmp_path / "Tiny-Llama", "gemma3")
    assert "Gemma3ForCausalLM" in describe_model(tmp_path / "ultravox")
    need = memory_need(EngineConfig(tmp_path / "ultravox", "u", weights="float32", kv_cache_bytes=8 << 20))
    parts = (*larger.model.language_model.parameters(), *model.encoder.values(), *model.projector.values())
    assert need.weights_bytes == sum(one.nbytes for one in parts)


def test_a_text_model_in_quantised_weights_is_read_as_in_a_folder_of_its_own(tmp_path, make_real_engine):
    model = write_ultravox(tmp_path / "ultravox", holds=("audio",))
    write_quantized(tmp_path / "Tiny-Llama", model.text, *FORMATS["GPTQ"][:2])
    assert "weights in GPTQ" in describe_model(tmp_path / "ultravox")
    num_rows, answered = model.expected(CONVERSATIONS[0], NUM_TOKENS)
    engine = make_real_engine(tmp_path / "ultravox")
    engine.submit("run", messages=engine_messages(CONVERSATIONS[0]), **GREEDY)
    events = engine.events_to_end("run")["run"]
    assert (events[0].payload.num_prompt_tokens, token_ids(events)) == (num_rows, answered)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"audio_latency_block_size": 100}, "audio_latency_block_size is not served"),
        ({"num_projector_layers": 2}, "num_projector_layers is not served"),
        ({"stack_factor": 0}, "stack_factor must be a positive integer"),
        ({"audio_config": {"model_type": "wav2vec2"}}, "must be 'whisper'"),
        ({"text_config": {"model_type": "mamba"}}, "not served with the text model 'mamba'"),
        ({"text_config": None, "text_model_id": "../secret"}, "names none by an id of the hub"),
        ({"text_config": None}, "names none by an id of the hub"),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path, fields, words):
    write_ultravox(tmp_path, **fields)
    with pytest.raises(ModelLoadError) as caught:
        read_purpose(tmp_path)
    assert words in caught.value.message


def test_a_tensor_that_is_missing_is_named(tmp_path):
    model = write_ultravox(tmp_path)
    tensors = {f"audio_tower.{name}": tensor for name, tensor in model.encoder.items()}
    with pytest.raises(ModelLoadError, match=r"tensor 'ln_pre.weight' is missing"):
        UltravoxEncoder.load(tmp_path, tensors, torch.device("cpu"), torch.float32)
    assert sound_config(tmp_path).projector["stack_factor"] == 8


def test_a_vocabulary_without_a_token_for_sounds_is_refused(tmp_path):
    write_ultravox(tmp_path, special=("<|other|>", "<|audio|>"))  # the second has no row in the embedding
    with pytest.raises(ModelLoadError, match="no special token that can stand for sounds"):
        answer("open", str(tmp_path))


@pytest.mark.parametrize("change", [{"d_model": "x"}, {"max_source_positions": 0}])
def test_an_encoder_whose_size_makes_no_sense_is_refused(tmp_path, change):
    write_ultravox(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["audio_config"] |= change
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelLoadError, match="the size of its encoder cannot be read"):
        read_sounds(tmp_path, 60)
