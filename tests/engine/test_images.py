"""Answers about images equal those of transformers on the same float32 weights: alone, in a crowd, in small chunks."""

from __future__ import annotations

import base64
import dataclasses
import io

import numpy
import pytest
import torch
from PIL import Image

from engine.api import BeamOptions, Completed, Delta, Outcome, PromptOptions, Rejected, SamplingParams, StopRules
from engine.api.media import MediaLimits
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.inputs.file_text import read
from engine.model_kind import read_purpose
from tests.engine.inputs.pdf_writing import scan
from tests.engine.real_engine import RealEngine, write_model
from tests.engine.seeing_folders import FAMILIES, encoded, image_of, write_seeing

NUM_TOKENS = 12
NO_END = 10**6
PAGE_RULES = {"is_each": False, "num_left": 16, "max_pixels": 50_000_000, "max_side": 16_384}
GREEDY = {
    "sampling": SamplingParams(temperature=0.0),
    "stop": StopRules(max_tokens=NUM_TOKENS, ignore_eos=True),
}
CONVERSATIONS = [
    [["hello", image_of(40, 30, 1), " what is it?"]],
    [[image_of(90, 40, 2), image_of(40, 30, 1), "compare"]],
    [["a word"]],
    [[image_of(40, 30, 1), "first"], ["second ", image_of(64, 64, 3)]],
]
"""The parts of each message of the user."""
TOGETHER = MediaLimits(max_encoder_tokens=256)
"""Images that wait at the same time are encoded together."""


def engine_messages(conversation):
    return tuple(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "data": encoded(part)}
                for part in parts
            ],
        }
        for parts in conversation
    )


@torch.inference_mode()
def expected(model, processor, conversation, **options):
    """Return the prompt and the greedy answer of transformers. `options`: of the processor."""
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in parts
            ],
        }
        for parts in conversation
    ]
    images = [part for parts in conversation for part in parts if not isinstance(part, str)]
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    inputs = processor(text=[text], images=images or None, return_tensors="pt", add_special_tokens=False, **options)
    output = model.generate(**inputs, max_new_tokens=NUM_TOKENS, eos_token_id=NO_END, do_sample=False, use_cache=True)
    prompt = inputs["input_ids"][0].tolist()
    return prompt, output[0].tolist()[len(prompt) :]


def token_ids(events):
    payloads = [event.payload for event in events]
    assert isinstance(payloads[-1], Completed), payloads[-1]
    assert payloads[-1].outcome is Outcome.FINISHED
    return [token_id for payload in payloads if isinstance(payload, Delta) for token_id in payload.token_ids]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_about_images_are_those_of_transformers(tmp_path, make_real_engine, family):
    model, processor = write_seeing(tmp_path, family)
    found = [expected(model, processor, conversation) for conversation in CONVERSATIONS]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24, media=TOGETHER)
    for conversation, (prompt, answer) in zip(CONVERSATIONS, found, strict=True):
        engine.submit("alone", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    for number, conversation in enumerate(CONVERSATIONS * 2):
        engine.submit(str(number), messages=engine_messages(conversation), **GREEDY)
    crowd = engine.events_to_end(*(str(number) for number in range(2 * len(CONVERSATIONS))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == [answer for _, answer in found * 2]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gemma3", {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16}),
        ("idefics3", {"do_image_splitting": False}),
        ("phi4_multimodal", {"dynamic_hd": 1}),
        ("pixtral", {"size": {"longest_edge": 40}}),
    ],
    ids=["gemma3", "idefics3", "phi4_multimodal", "pixtral"],
)
def test_options_of_the_processor_are_those_of_transformers(tmp_path, make_real_engine, family, options):
    model, processor = write_seeing(tmp_path, family)
    conversation = [["hello", image_of(90, 40, 2), " what is it?"]]
    engine, prompts = make_real_engine(tmp_path, max_num_batched_tokens=24), []
    for chosen in ({}, options, {}):
        prompt, answer = expected(model, processor, conversation, **chosen)
        prompts.append(prompt)
        asked = PromptOptions(media_options={"mm_processor_kwargs": chosen})
        engine.submit("run", messages=engine_messages(conversation), prompt=asked, **GREEDY)
        events = engine.events_to_end("run")["run"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    assert prompts[0] != prompts[1]


SEEN = image_of(40, 30, 1)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """A running engine of a model that sees."""
    folder = tmp_path_factory.mktemp("seeing")
    write_seeing(folder, "llava")
    engine = RealEngine(folder, max_num_batched_tokens=24)
    yield engine
    assert engine.core_stats().integrity == ""
    engine.close()


def refusal(engine, content, **changes):
    engine.submit("refused", messages=({"role": "user", "content": content},), **{**GREEDY, **changes})
    (event,) = engine.events_to_end("refused")["refused"]
    assert isinstance(event.payload, Rejected)
    return event.payload


def test_the_same_words_about_other_images_have_other_answers(seeing):
    answers = []
    for number in (1, 2, 1):
        seeing.submit("run", messages=engine_messages([["look ", image_of(40, 30, number), " now"]]), **GREEDY)
        answers.append(seeing.events_to_end("run")["run"])
    first, other, again = answers
    assert token_ids(first) == token_ids(again) != token_ids(other)
    assert again[-1].payload.usage.cached_tokens > other[-1].payload.usage.cached_tokens


def test_tenants_share_no_prefix_with_images(seeing):
    messages = engine_messages([["whose ", SEEN]])
    usages = []
    for tenant in ("one", "one", "two"):
        seeing.submit("run", messages=messages, tenant=tenant, **GREEDY)
        usages.append(seeing.events_to_end("run")["run"][-1].payload.usage)
    first, again, other = (usage.cached_tokens for usage in usages)
    assert first == other == 0 < again


def test_a_broken_image_is_refused_with_the_name_of_its_part(seeing):
    text = {"type": "text", "text": "hi"}
    broken = {"type": "image", "data": encoded(SEEN)[:200], "param": "messages.0.content.1.image_url"}
    found = refusal(seeing, [text, broken])
    assert found.param == "messages.0.content.1.image_url"
    assert "damaged or incomplete" in found.message


def test_a_prompt_that_is_cut_within_an_image_is_refused(seeing):
    found = refusal(seeing, [{"type": "image", "data": encoded(SEEN)}], prompt=PromptOptions(truncate_to=8))
    assert "without truncate_prompt_tokens" in found.message


def test_a_placeholder_that_somebody_writes_is_text(seeing):
    seeing.submit("run", messages=engine_messages([["what is <image>?"]]), **GREEDY)
    typed = seeing.events_to_end("run")["run"]
    assert typed[0].payload.num_prompt_tokens > len("what is <image>?")
    (image,) = engine_messages([[SEEN]])[0]["content"]
    for quoted in ("I see <image>.", [{"type": "text", "text": "<image>"}]):
        messages = ({"role": "assistant", "content": quoted}, {"role": "user", "content": [image]})
        seeing.submit("run", messages=messages, **GREEDY)
        assert len(token_ids(seeing.events_to_end("run")["run"])) == NUM_TOKENS


def test_options_are_refused_by_name_with_or_without_an_image(seeing):
    for content in ([{"type": "image", "data": encoded(SEEN)}], [{"type": "text", "text": "hi"}]):
        for name, value in (("mm_processor_kwargs", {"do_resize": False}), ("media_io_kwargs", {"audio": {"rate": 5}})):
            found = refusal(seeing, content, prompt=PromptOptions(media_options={name: value}))
            assert found.param == f"{name}.{next(iter(value))}"


def test_what_is_transparent_has_the_background_that_is_asked_for(seeing):
    clear = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    red = {"media_io_kwargs": {"image": {"rgba_background_color": [255, 0, 0]}}}
    answers = []
    for image, options in ((clear, red), (Image.new("RGB", (40, 30), "red"), {}), (clear, {})):
        asked = PromptOptions(media_options=options)
        seeing.submit("run", messages=engine_messages([["look ", image]]), prompt=asked, **GREEDY)
        answers.append(token_ids(seeing.events_to_end("run")["run"]))
    assert answers[0] == answers[1] != answers[2]


def sent_file(data, **changes):
    file = {"file_data": base64.b64encode(data).decode(), "filename": "x.pdf", **changes}
    return {"type": "file", "file": file, "param": "messages.0.content.0.file"}


def test_pages_of_a_file_without_text_are_images_between_their_marks(seeing):
    """The answer is that to the same text and pixels; the same page in another file finds their prefix."""
    data = scan(("", "ff0000 00ff00 0000ff 000000"), ("Done.", ""))
    head, page, end = read(base64.b64encode(data).decode(), "x.pdf", PAGE_RULES)
    by_hand = [{"type": "text", "text": f"File: x.pdf\n{head}"}, {"type": "image", "data": page}]
    usages, answers = [], []
    for content in ([*by_hand, {"type": "text", "text": end}], [sent_file(data)], [sent_file(data, detail="high")]):
        seeing.submit("run", messages=({"role": "user", "content": content},), **GREEDY)
        events = seeing.events_to_end("run")["run"]
        answers.append(token_ids(events))
        usages.append(events[-1].payload.usage)
    assert answers[0] == answers[1] != answers[2]
    assert [usage.image_tokens for usage in usages] == [16, 16, 32]
    assert usages[1].cached_tokens >= 16


def test_pages_are_counted_over_all_files_of_a_request(seeing):
    data = scan(*[("", "ff0000 00ff00 0000ff 000000")] * 9)
    found = refusal(seeing, [sent_file(data), sent_file(data)])
    assert found.param == "messages.0.content.0.file"
    assert "9 pages of the PDF file" in found.message
    assert "7 more" in found.message


def test_an_image_that_no_step_has_room_for_is_refused_with_the_setting_to_raise(tmp_path, make_real_engine):
    """Tokens of an image of Gemma 3 see each other, so one step computes all 16."""
    write_seeing(tmp_path, "gemma3")
    engine = make_real_engine(tmp_path, max_num_batched_tokens=6, max_num_seqs=2)
    found = refusal(engine, [{"type": "image", "data": encoded(SEEN)}])
    assert found.param == "messages"
    assert "an image of 16 tokens is computed in one step, and steps of this model have at most 12" in found.message
    assert "LIGHTCONE_MAX_NUM_BATCHED_TOKENS" in found.message


def test_beam_search_takes_no_images(seeing):
    found = refusal(seeing, [{"type": "image", "data": encoded(SEEN)}], beam=BeamOptions(), num_choices=2)
    assert found.param == "use_beam_search"


def test_several_choices_see_one_image(seeing):
    seeing.submit("run", messages=engine_messages([[SEEN, "n"]]), num_choices=3, **GREEDY)
    events = seeing.events_to_end("run")["run"]
    choices = {}
    for event in events:
        if isinstance(event.payload, Delta):
            choices.setdefault(event.payload.choice, []).extend(event.payload.token_ids)
    assert len(choices) == 3
    assert len({tuple(ids) for ids in choices.values()}) == 1


def test_a_model_that_reads_text_alone_refuses_images(tmp_path, make_real_engine):
    write_model(tmp_path)
    found = refusal(make_real_engine(tmp_path), [{"type": "image", "data": encoded(SEEN)}])
    assert found.message == "this model takes no images"


def test_a_model_that_reads_text_alone_names_those_that_see_pages(tmp_path, make_real_engine):
    write_model(tmp_path)
    found = refusal(make_real_engine(tmp_path), [sent_file(scan(("", "00" * 12))) | {"seeing": ["llava"]}])
    assert found.param == "messages.0.content.0.file"
    assert found.message.endswith("a model that takes images sees its pages, such as llava, or send their text")


def test_the_encoder_counts_to_the_memory_of_a_model(tmp_path):
    model, _ = write_seeing(tmp_path, "llava")
    need = memory_need(EngineConfig(tmp_path, "seeing", weights="float32", kv_cache_bytes=4 << 20))
    assert need.weights_bytes == sum(parameter.nbytes for parameter in model.parameters())


def test_what_the_encoder_takes_is_part_of_the_memory_of_a_model(tmp_path):
    write_seeing(tmp_path, "llava")
    config = EngineConfig(tmp_path, "seeing", weights="float32", kv_cache_bytes=4 << 20)
    need = memory_need(config)
    together = dataclasses.replace(config, media=MediaLimits(max_encoder_tokens=1600))
    assert need.media_bytes > 0
    assert memory_need(together).media_bytes > 20 * need.media_bytes, "a hundred images of 16 tokens at once"
    assert "the largest image, video or sound" in need.refusal(need.total_bytes - need.media_bytes)


def test_a_folder_without_a_processor_reads_text(tmp_path):
    write_seeing(tmp_path, "idefics3")
    assert read_purpose(tmp_path).modalities == ["image"]
    for name in ("preprocessor_config.json", "processor_config.json"):
        (tmp_path / name).unlink(missing_ok=True)
    assert read_purpose(tmp_path).modalities == []


def as_vectors(model, processor, image):
    """Return what the encoder of transformers makes of an image, as clients send it."""
    made = processor(text=[processor.image_token], images=[image], return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        features = model.get_image_features(pixel_values=made["pixel_values"]).pooler_output
    file = io.BytesIO()
    numpy.save(file, torch.cat([one.reshape(-1, one.shape[-1]) for one in features]).numpy())
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("family", ["llava", "gemma3"])
def test_vectors_of_an_image_answer_as_the_image_does(tmp_path, make_real_engine, family):
    model, processor = write_seeing(tmp_path, family)
    image = image_of(40, 30, 1)
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    engine.submit("image", messages=engine_messages([["hello", image, " what is it?"]]), **GREEDY)
    vectors = {"type": "image", "is_vectors": True, "data": as_vectors(model, processor, image), "param": "x"}
    parts = [{"type": "text", "text": "hello"}, vectors, {"type": "text", "text": " what is it?"}]
    engine.submit("vectors", messages=({"role": "user", "content": parts},), **GREEDY)
    found = engine.events_to_end("image", "vectors")
    assert token_ids(found["vectors"]) == token_ids(found["image"])
    usages = [found[name][-1].payload.usage for name in ("image", "vectors")]
    assert usages[0].image_tokens == usages[1].image_tokens > 0


@pytest.mark.parametrize(
    ("family", "width", "words"),
    [("llava", 31, "rows of 32 numbers"), ("pixtral", 32, "more than rows"), ("qwen2_vl", 32, "more than rows")],
)
def test_vectors_that_cannot_stand_for_an_image_are_refused(tmp_path, make_real_engine, family, width, words):
    write_seeing(tmp_path, family)
    file = io.BytesIO()
    numpy.save(file, numpy.zeros((16, width), numpy.float32))
    data = base64.b64encode(file.getvalue()).decode()
    part = {"type": "image", "is_vectors": True, "data": data, "param": "messages.0.content.0.image_embeds"}
    engine = make_real_engine(tmp_path)
    engine.submit("run", messages=({"role": "user", "content": [part]},), **GREEDY)
    (rejected,) = (event.payload for event in engine.events_to_end("run")["run"])
    assert isinstance(rejected, Rejected)
    assert words in rejected.message
    assert rejected.param == "messages.0.content.0.image_embeds"
