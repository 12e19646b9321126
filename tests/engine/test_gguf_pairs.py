"""A text model's GGUF file with a projector beside it answers about images as transformers does on the folder."""

from __future__ import annotations

import pytest

from engine.model_kind import read_purpose
from tests.engine.gguf_pairs import TEXTS, write_pair
from tests.engine.test_images import CONVERSATIONS, GREEDY, engine_messages, expected, token_ids


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
