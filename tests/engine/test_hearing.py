"""Answers about sounds equal those of transformers on the same float32 weights: alone, in a crowd, in small chunks."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
import transformers

from engine.api import BeamOptions, PromptOptions, Rejected
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.model_kind import read_purpose
from engine.models.registry import describe_folder
from tests.engine.hearing_folders import FAMILIES, RATE, SHORT_S, encoded, sound_of, write_hearing
from tests.engine.inputs.media.streams import film
from tests.engine.real_engine import RealEngine
from tests.engine.speech_folders import wav
from tests.engine.test_images import GREEDY, NO_END, NUM_TOKENS, token_ids

CONVERSATIONS = [
    [["hello", sound_of(0.7, 1), " what is it?"]],
    [[sound_of(1.9, 2), sound_of(0.7, 1), "compare"]],
    [["a word"]],
    [[sound_of(0.7, 1), "first"], ["second ", sound_of(1.0, 3)]],
]
"""The parts of each message of the user."""


def engine_messages(conversation):
    return tuple(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "audio", "data": encoded(part)}
                for part in parts
            ],
        }
        for parts in conversation
    )


def processed(processor, conversation):
    """Return what transformers makes of a conversation."""
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "audio", "audio": part}
                for part in parts
            ],
        }
        for parts in conversation
    ]
    if "Voxtral" in type(processor).__name__:
        return processor.apply_chat_template(messages)
    sounds = [part for parts in conversation for part in parts if not isinstance(part, str)]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor(
        text=[text], audio=sounds or None, sampling_rate=RATE, return_tensors="pt", add_special_tokens=False
    )


@torch.inference_mode()
def expected(model, processor, conversation):
    """Return the prompt and the greedy answer of transformers."""
    inputs = processed(processor, conversation)
    output = model.generate(**inputs, max_new_tokens=NUM_TOKENS, eos_token_id=NO_END, do_sample=False, use_cache=True)
    prompt = inputs["input_ids"][0].tolist()
    return prompt, output[0].tolist()[len(prompt) :]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_about_sounds_are_those_of_transformers(tmp_path, make_real_engine, family):
    model, processor = write_hearing(tmp_path, family)
    found = [expected(model, processor, conversation) for conversation in CONVERSATIONS]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    for conversation, (prompt, answer) in zip(CONVERSATIONS, found, strict=True):
        engine.submit("alone", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    for number, conversation in enumerate(CONVERSATIONS * 2):
        engine.submit(str(number), messages=engine_messages(conversation), **GREEDY)
    crowd = engine.events_to_end(*(str(number) for number in range(2 * len(CONVERSATIONS))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == [answer for _, answer in found * 2]


HEARD = sound_of(0.7, 1)
"""Of a part."""


@pytest.fixture(scope="module")
def hearing(tmp_path_factory):
    """A running engine of a model that hears."""
    folder = tmp_path_factory.mktemp("hearing")
    write_hearing(folder, "qwen2_audio")
    engine = RealEngine(folder, max_num_batched_tokens=24)
    yield engine
    assert engine.core_stats().integrity == ""
    engine.close()


def refusal(engine, content, **changes):
    engine.submit("refused", messages=({"role": "user", "content": content},), **{**GREEDY, **changes})
    (event,) = engine.events_to_end("refused")["refused"]
    assert isinstance(event.payload, Rejected)
    return event.payload


def test_the_same_words_about_other_sounds_have_other_answers(hearing):
    found = []
    for number in (1, 2, 1):
        hearing.submit("run", messages=engine_messages([["listen ", sound_of(1.0, number), " now"]]), **GREEDY)
        found.append(hearing.events_to_end("run")["run"])
    first, other, again = found
    assert token_ids(first) == token_ids(again) != token_ids(other)
    usages = [events[-1].payload.usage for events in found]
    assert usages[2].cached_tokens > usages[1].cached_tokens
    assert [usage.audio_tokens for usage in usages] == [25, 25, 25]


def test_tenants_share_no_prefix_with_sounds(hearing):
    messages, usages = engine_messages([["whose ", HEARD]]), []
    for tenant in ("one", "one", "two"):
        hearing.submit("run", messages=messages, tenant=tenant, **GREEDY)
        usages.append(hearing.events_to_end("run")["run"][-1].payload.usage)
    first, again, other = (usage.cached_tokens for usage in usages)
    assert first == other == 0 < again


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (SHORT_S + 0.2, "at most 2 seconds, which this model hears at once, got 2.2; send parts of it"),
        (0.05, "at least 0.1 seconds"),
    ],
)
def test_a_sound_that_is_too_long_or_too_short_is_refused_with_the_limit(hearing, seconds, words):
    path = "messages.0.content.0.input_audio"
    found = refusal(hearing, [{"type": "audio", "data": encoded(sound_of(seconds)), "param": path}])
    assert found.param == path
    assert words in found.message


def test_what_an_encoder_has_added_to_the_longest_sound_is_dropped(hearing):
    answers = []
    for seconds in (SHORT_S, SHORT_S + 0.05):
        hearing.submit("run", messages=engine_messages([[sound_of(seconds, 6)]]), **GREEDY)
        answers.append(token_ids(hearing.events_to_end("run")["run"]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF" + bytes(40),
        wav(np.zeros(0)),
        base64.b64decode(encoded(HEARD))[:30],
        b"ID3" + bytes(4000),
        b"OggS" + bytes(200),
        b"%PDF-1.4",
        film(count=4, fps=10, size=(32, 32)),
    ],
    ids=["nothing", "head", "no samples", "cut", "MP3 of zeros", "Ogg of zeros", "PDF", "film without sound"],
)
def test_what_is_no_sound_is_refused_with_the_name_of_its_part(hearing, data):
    path = "messages.0.content.0.audio_url"
    found = refusal(hearing, [{"type": "audio", "data": base64.b64encode(data).decode(), "param": path}])
    assert found.param == path
    assert found.message.startswith(("the audio", path))


def test_silence_is_a_sound(hearing):
    hearing.submit("run", messages=engine_messages([[np.zeros(RATE, np.float32), "hm"]]), **GREEDY)
    assert len(token_ids(hearing.events_to_end("run")["run"])) == NUM_TOKENS


def test_beam_search_takes_no_sounds(hearing):
    part = {"type": "audio", "data": encoded(HEARD)}
    assert refusal(hearing, [part], beam=BeamOptions(), num_choices=2).param == "use_beam_search"


def test_a_model_that_hears_takes_no_images_and_no_options(hearing):
    text = {"type": "text", "text": "hi"}
    assert refusal(hearing, [{"type": "image", "data": "AAAA"}]).message == "this model takes no images"
    for name, option in (("mm_processor_kwargs", "x"), ("media_io_kwargs", "image")):
        found = refusal(hearing, [text], prompt=PromptOptions(media_options={name: {option: {"x": 1}}}))
        assert found.param == f"{name}.{option}"
    options = {"media_io_kwargs": {"audio": {"rate": 5}}}
    assert refusal(hearing, [text], prompt=PromptOptions(media_options=options)).param == "media_io_kwargs.audio.rate"


def test_a_placeholder_that_somebody_writes_is_text(hearing):
    hearing.submit("run", messages=engine_messages([["what is <|AUDIO|>?"]]), **GREEDY)
    assert hearing.events_to_end("run")["run"][0].payload.num_prompt_tokens > len("what is <|AUDIO|>?")


def test_a_sound_of_several_windows_answers_as_in_transformers(tmp_path, make_real_engine):
    model, processor = write_hearing(tmp_path, "voxtral")
    conversation = [["long ", sound_of(31.0, 4), " end"]]
    prompt, answer = expected(model, processor, conversation)
    engine = make_real_engine(tmp_path, max_num_batched_tokens=200)
    engine.submit("run", messages=engine_messages(conversation), **GREEDY)
    events = engine.events_to_end("run")["run"]
    assert events[0].payload.num_prompt_tokens == len(prompt)
    assert token_ids(events) == answer
    assert events[-1].payload.usage.audio_tokens == 2 * 375


def vectors_part(array):
    file = io.BytesIO()
    np.save(file, array)
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "audio", "is_vectors": True, "data": data, "param": "messages.0.content.0.audio_embeds"}


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_a_sound_answer_as_the_sound_does(tmp_path, make_real_engine, family):
    model, processor = write_hearing(tmp_path, family)
    inputs = processed(processor, [[HEARD]])
    embedded = []
    handle = model.get_decoder().register_forward_pre_hook(
        lambda _module, _args, kwargs: embedded.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    with torch.inference_mode():
        model(**inputs)
    handle.remove()
    is_sound = inputs["input_ids"][0] == model.config.audio_token_id
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    content = [vectors_part(embedded[0][0][is_sound].numpy()), {"type": "text", "text": " what is it?"}]
    engine.submit("sound", messages=engine_messages([[HEARD, " what is it?"]]), **GREEDY)
    engine.submit("vectors", messages=({"role": "user", "content": content},), **GREEDY)
    found = engine.events_to_end("sound", "vectors")
    assert token_ids(found["vectors"]) == token_ids(found["sound"])
    usages = [found[name][-1].payload.usage for name in ("sound", "vectors")]
    assert usages[0].audio_tokens == usages[1].audio_tokens > 0


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((16, 31), np.float32), "rows of 32 numbers"),
        (np.full((4, 32), np.nan, np.float32), "finite numbers"),
        (np.zeros((4, 32), np.int32), "must hold float16 or float32"),
        (np.zeros((5000, 32), np.float16), "at most 4096 rows"),
    ],
    ids=["width", "finite", "type", "rows"],
)
def test_vectors_that_cannot_stand_for_a_sound_are_refused(hearing, array, words):
    found = refusal(hearing, [vectors_part(array)])
    assert found.param == "messages.0.content.0.audio_embeds"
    assert words in found.message


def test_the_encoder_counts_to_the_memory_of_a_model(tmp_path):
    model, _ = write_hearing(tmp_path, "qwen2_audio")
    need = memory_need(EngineConfig(tmp_path, "hearing", weights="float32", kv_cache_bytes=4 << 20))
    assert need.weights_bytes == sum(parameter.nbytes for parameter in model.parameters())
    assert read_purpose(tmp_path).modalities == ["audio"]


def test_what_a_text_model_within_qwen2_audio_leaves_out_is_as_in_transformers(tmp_path):
    config = transformers.Qwen2AudioConfig(text_config={"model_type": "qwen2", "vocab_size": 300})
    _, model = describe_folder(
        "config.json",
        {
            "architectures": ["Qwen2AudioForConditionalGeneration"],
            "audio_config": {},
            "text_config": {"model_type": "qwen2", "vocab_size": 300},
        },
    )
    text = config.text_config
    found = (model.num_layers, model.hidden_size, model.vocab_size, model.max_position)
    assert found == (text.num_hidden_layers, text.hidden_size, 300, text.max_position_embeddings)
