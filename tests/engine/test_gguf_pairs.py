"""A text model's GGUF file with a projector beside it answers about images as transformers does on the folder."""

from __future__ import annotations

import pytest

from engine.api import ModelLoadError
from engine.model_kind import read_purpose
from tests.engine.gguf_pairs import TEXTS, write_pair
from tests.engine.seeing_folders import SPECIAL, image_of
from tests.engine.test_images import CONVERSATIONS, GREEDY, NUM_TOKENS, engine_messages, expected, token_ids
from tests.engine.test_videos import FRAMES, listed, message


@pytest.mark.parametrize("family", TEXTS)
def test_answers_about_images_are_those_of_transformers(tmp_path, make_real_engine, family):
    model, processor = write_pair(tmp_path, family)
    found = [expected(model, processor, conversation) for conversation in CONVERSATIONS]
    assert "image" in read_purpose(tmp_path / "text.gguf").modalities
    engine = make_real_engine(tmp_path / "text.gguf", max_num_batched_tokens=24)
    for conversation, (prompt, answer) in zip(CONVERSATIONS, found, strict=True):
        engine.submit("alone", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    (conversation, *_), ((_, answer), *_) = CONVERSATIONS, found
    engine.submit("again", messages=engine_messages(conversation), **GREEDY)
    events = engine.events_to_end("again")["again"]
    assert token_ids(events) == answer
    assert events[-1].payload.usage.cached_tokens > 0


def test_a_projector_in_eight_bits_answers_as_its_numbers_do(tmp_path, make_real_engine):
    model, processor = write_pair(tmp_path, "idefics3", type_of=lambda name: "Q8_0" if "ffn_down" in name else "F16")
    prompt, answer = expected(model, processor, CONVERSATIONS[0])
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    engine.submit("run", messages=engine_messages(CONVERSATIONS[0]), **GREEDY)
    events = engine.events_to_end("run")["run"]
    assert (events[0].payload.num_prompt_tokens, token_ids(events)) == (len(prompt), answer)


def test_a_vocabulary_without_the_token_of_images_has_the_unknown_one_for_it(tmp_path, make_real_engine):
    """As files of LLaVA 1.5 are. Nobody can type the text that templates write for an image."""
    without = [token for token in SPECIAL if token != "<image>"] + ["<other>"]
    model, processor = write_pair(tmp_path, "llava", tokens=without)
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    for conversation in ([["hello ", image_of(40, 30, 1)]], [["hello <image> ", image_of(40, 30, 1)]]):
        engine.submit("run", messages=engine_messages(conversation), **GREEDY)
        assert len(token_ids(engine.events_to_end("run")["run"])) == NUM_TOKENS
    prompt, answer = expected(model, processor, CONVERSATIONS[0])
    engine.submit("run", messages=engine_messages(CONVERSATIONS[0]), **GREEDY)
    events = engine.events_to_end("run")["run"]
    assert (events[0].payload.num_prompt_tokens, token_ids(events)) == (len(prompt), answer)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_pair_of_qwen_takes_videos(tmp_path, make_real_engine, family):
    write_pair(tmp_path, family)
    assert read_purpose(tmp_path).modalities == ["image", "video"]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    engine.submit("run", messages=(message(["see ", listed(FRAMES)], True),), **GREEDY)
    events = engine.events_to_end("run")["run"]
    assert len(token_ids(events)) == NUM_TOKENS
    assert events[-1].payload.usage.video_tokens > 0


def test_a_vocabulary_without_the_tokens_around_images_is_refused_by_name(tmp_path, make_real_engine):
    write_pair(tmp_path, "idefics3", tokens=[token for token in SPECIAL if token != "<global-img>"] + ["<other>"])
    with pytest.raises(ModelLoadError) as refused:
        make_real_engine(tmp_path)
    for words in ("text.gguf: its vocabulary has no '<global-img>'", "mmproj-text.gguf"):
        assert words in refused.value.message
