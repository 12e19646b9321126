"""The published OpenAI client's Responses API against a served Lightcone."""

from __future__ import annotations

import time
from typing import Any

import openai
import pydantic
import pytest

pytestmark = pytest.mark.live

GREEDY: dict[str, Any] = {"temperature": 0, "max_output_tokens": 8}
WEATHER: list[Any] = [
    {
        "type": "function",
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    }
]
ENDED = ("completed", "incomplete")


@pytest.fixture(scope="module")
def client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as made:
        yield made


@pytest.fixture
def create(client, lightcone):
    def make(**fields: Any) -> Any:
        return client.responses.create(**{"model": lightcone.model, "input": "Say hello.", **GREEDY, **fields})

    return make


def test_a_response_is_created_fetched_listed_and_deleted(client, create):
    made = create(metadata={"a": "b"}, instructions="Be brief.")
    assert made.status in ENDED
    assert made.output_text
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    [item] = client.responses.input_items.list(made.id).data
    assert item.content[0].text == "Say hello."
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_stream_equals_the_stored_response_and_resumes_anywhere(client, create):
    streamed = list(create(stream=True))
    assert [event.type for event in streamed[:3]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    final = streamed[-1].response
    assert "".join(event.delta for event in streamed if event.type == "response.output_text.delta") == final.output_text
    assert [event.sequence_number for event in streamed] == list(range(len(streamed)))
    assert client.responses.retrieve(final.id).to_dict() == final.to_dict()
    again = list(client.responses.retrieve(final.id, stream=True, starting_after=3))
    assert [event.to_dict() for event in again] == [event.to_dict() for event in streamed[4:]]


def test_the_stream_helper_accumulates(client, lightcone):
    choice = {"structured_outputs": {"choice": ["Hello."]}}
    with client.responses.stream(model=lightcone.model, input="Say hello.", **GREEDY, extra_body=choice) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(deltas) == stream.get_final_response().output_text == "Hello."


def test_a_conversation_continues_from_an_id(client, create):
    first = create(input="My name is Ann.")
    second = create(input="What is my name?", previous_response_id=first.id)
    sent = [
        {"role": "user", "content": "My name is Ann."},
        *[item.to_dict() for item in first.output],
        {"role": "user", "content": "What is my name?"},
    ]
    assert create(input=sent).usage.input_tokens == second.usage.input_tokens
    assert len(client.responses.input_items.list(second.id).data) == 3
    counted = client.responses.input_tokens.count(
        input="What is my name?", previous_response_id=first.id, model=second.model
    )
    assert counted.input_tokens == second.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        create(previous_response_id="resp_" + "0" * 32)


def test_function_tools_are_called_and_answered(create):
    made = create(tools=WEATHER, tool_choice={"type": "function", "name": "weather"}, max_output_tokens=24)
    [call] = made.output
    assert (call.type, call.name) == ("function_call", "weather")
    answered = create(
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}],
        previous_response_id=made.id,
        tools=WEATHER,
    )
    assert answered.status in ENDED


class Verdict(pydantic.BaseModel):
    ok: bool


def test_json_schemas_are_parsed(client, lightcone):
    parsed = client.responses.parse(
        model=lightcone.model, input="Is 1 = 1?", text_format=Verdict, temperature=0, max_output_tokens=16
    )
    assert isinstance(parsed.output_parsed, Verdict)


def test_log_probabilities_come_when_included(create):
    made = create(include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=2)
    [message] = made.output
    assert [len(entry.top_logprobs) for entry in message.content[0].logprobs] == [2, 2]


def test_a_background_response_is_polled_until_it_ends(client, create):
    made = create(background=True)
    assert made.status in ("queued", "in_progress")
    deadline = time.monotonic() + 120
    while made.status not in ENDED:
        assert time.monotonic() < deadline, made
        time.sleep(0.05)
        made = client.responses.retrieve(made.id)
    assert made.output_text
    assert client.responses.cancel(made.id).status == made.status


def test_a_background_response_is_cancelled(client, create):
    made = create(background=True, max_output_tokens=1000, extra_body={"ignore_eos": True})
    assert client.responses.cancel(made.id).status == "cancelled"
    assert client.responses.retrieve(made.id).status == "cancelled"


def test_a_background_stream_is_left_and_picked_up(client, create):
    stream = create(background=True, stream=True, max_output_tokens=16, extra_body={"ignore_eos": True})
    head = [next(stream) for _ in range(6)]
    stream.close()
    rest = list(client.responses.retrieve(head[0].response.id, stream=True, starting_after=head[-1].sequence_number))
    assert [event.sequence_number for event in (*head, *rest)] == list(range(len(head) + len(rest)))
    assert rest[-1].response.status in ENDED
    assert [event.type for event in head[:3]] == ["response.created", "response.queued", "response.in_progress"]


def test_unsupported_fields_and_parts_are_refused_by_name(create):
    for fields, param in (
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"extra_body": {"max_tokens": 3}}, "max_tokens"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]},
            "input.0.content.0.image_url",
        ),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            create(**fields)
        assert refused.value.param == param


def test_a_truncated_conversation_keeps_its_end(create):
    asked = {"role": "user", "content": "Say hello."}
    long = [{"role": "user", "content": "many words " * 10_000}, asked]
    with pytest.raises(openai.BadRequestError) as refused:
        create(input=long)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    assert create(input=long, truncation="auto").output_text == create(input=[asked]).output_text
