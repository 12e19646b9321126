"""Prompts that cannot fit are refused by their characters, counting only text that every template shows."""

import pytest

from engine.api import (
    Event,
    GenerationRequest,
    PromptOptions,
    RawPrompt,
    Rejected,
    RequestError,
    Task,
    check_prompt_fits,
    is_long,
)
from engine.api.wire import event_from_plain, event_to_plain

CONTEXT, LONGEST = 100, 10


def request(*messages, **more):
    return GenerationRequest("run", "model", messages, 0.0, **more)


def fits(made):
    try:
        check_prompt_fits(made, LONGEST, CONTEXT)
    except RequestError as error:
        return str(error.code)
    return ""


def said(text, role="user"):
    return {"role": role, "content": text}


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (request(said("x" * 1000)), ""),
        (request(said("x" * 500), said("x" * 501)), "context_length_exceeded"),
        (
            request(said([{"type": "text", "text": "x" * 600}, {"type": "text", "text": "x" * 600}])),
            "context_length_exceeded",
        ),
        (request(said("x" * 1001, "assistant")), "context_length_exceeded"),
        (request(said("<think>" + "x" * 2000 + "</think>yes", "assistant")), ""),
        (request(said("x" + " " * 2000)), ""),
        (request(said([{"type": "file", "file": {"file_data": "x" * 2000}}])), ""),
        (request(said(None)), ""),
        (request(said("x" * 2000), prompt=PromptOptions(chat_template="{{ 1 }}")), ""),
        (request(said("x" * 2000), prompt=PromptOptions(truncate_to=10)), ""),
        (request(said("x" * 2000), task=Task.READ), ""),
        (request(raw=RawPrompt("x" * 990, suffix="x" * 11)), "context_length_exceeded"),
        (request(raw=RawPrompt(token_ids=(1,) * 101)), "context_length_exceeded"),
        (request(raw=RawPrompt(token_ids=(1,) * 100)), ""),
        (request(raw=RawPrompt("x" * 8_000_001), prompt=PromptOptions(truncate_to=10)), "invalid_value"),
    ],
)
def test_only_text_that_every_template_shows_is_counted(made, answer):
    assert fits(made) == answer


def test_a_prompt_too_long_is_refused_with_limit_and_size():
    with pytest.raises(RequestError) as caught:
        check_prompt_fits(request(raw=RawPrompt(token_ids=(1,) * 101)), LONGEST, CONTEXT)
    assert (caught.value.limit, caught.value.value) == (100, 101)
    rejected = event_from_plain(event_to_plain(Event(0, 1, Rejected.by(caught.value)))).payload
    assert (rejected.limit, rejected.value) == (100, 101)


def test_the_context_is_looked_up_for_long_prompts_only():
    assert not is_long(request(said("x" * 16_384)))
    assert is_long(request(said("x" * 16_385)))
    assert is_long(request(raw=RawPrompt(token_ids=(1,) * 16_385)))
