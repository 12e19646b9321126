"""The published OpenAI client against a served Lightcone: all its chat features work unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import httpx
import openai
import pydantic
import pytest

pytestmark = pytest.mark.live

MESSAGES = [{"role": "user", "content": "Say hello in one short sentence."}]
GREEDY = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _warm(client, lightcone):
    """Put the prompt into the prefix cache.

    Texts are compared between requests. Outside the batch-invariant mode a cold prompt uses other kernels than a cached
    one, whose last bits may choose another token.
    """
    create(client, lightcone)


def create(client, lightcone, **fields):
    return client.chat.completions.create(model=lightcone.model, **{**GREEDY, **fields})


def test_an_answer_has_text_usage_and_a_finish_reason(client, lightcone):
    answer = create(client, lightcone)
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == lightcone.model
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.message.tool_calls is None
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_joins_to_the_plain_answer(client, lightcone):
    chunks = list(create(client, lightcone, stream=True, stream_options={"include_usage": True}))
    *rest, usage = chunks
    assert usage.choices == []
    assert usage.usage.total_tokens > 0
    assert rest[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason is not None for chunk in rest] == [False] * (len(rest) - 1) + [True]
    plain = create(client, lightcone)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in rest) == plain.choices[0].message.content
    assert usage.usage.completion_tokens == plain.usage.completion_tokens


def test_the_stream_helper_accumulates(client, lightcone):
    ends_early = {**GREEDY, "stop": [" ", "."]}
    with client.chat.completions.stream(model=lightcone.model, **ends_early) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.content == create(client, lightcone, **ends_early).choices[0].message.content


async def test_the_async_client_answers_and_streams(lightcone):
    async with openai.AsyncOpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as client:
        plain = await client.chat.completions.create(model=lightcone.model, **GREEDY)
        stream = await client.chat.completions.create(model=lightcone.model, stream=True, **GREEDY)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == plain.choices[0].message.content


def test_several_choices_come_with_their_indexes(client, lightcone):
    answer = create(client, lightcone, n=3, temperature=1, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    seen: dict[int, list[str]] = {}
    for chunk in create(client, lightcone, n=3, temperature=1, seed=5, stream=True):
        for choice in chunk.choices:
            seen.setdefault(choice.index, []).append(choice.finish_reason or "")
    assert sorted(seen) == [0, 1, 2]
    assert all(reasons[-1] and not any(reasons[:-1]) for reasons in seen.values())


def test_a_seed_repeats_the_draw(client, lightcone):
    first, second = (create(client, lightcone, temperature=1, seed=11).choices[0].message.content for _ in range(2))
    assert first == second


def test_logprobs_are_parsed(client, lightcone):
    (choice,) = create(client, lightcone, logprobs=True, top_logprobs=2, max_tokens=3).choices
    assert 1 <= len(choice.logprobs.content) <= 3
    for entry in choice.logprobs.content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 2
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob


def test_a_stop_string_ends_the_answer_before_it(client, lightcone):
    text = create(client, lightcone).choices[0].message.content
    stop = text[3:6]
    (choice,) = create(client, lightcone, stop=stop).choices
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop"


def test_extra_body_fields_reach_the_engine(client, lightcone):
    answer = create(client, lightcone, max_tokens=8, extra_body={"min_tokens": 8, "ignore_eos": True, "top_k": 5})
    assert answer.usage.completion_tokens == 8
    assert answer.choices[0].finish_reason == "length"


def test_the_raw_response_shows_headers(client, lightcone):
    raw = client.chat.completions.with_raw_response.create(
        model=lightcone.model, extra_headers={"X-Request-Id": "my-id"}, **GREEDY
    )
    assert raw.headers["x-request-id"] == "my-id"
    assert raw.parse().id == "chatcmpl-my-id"


class City(pydantic.BaseModel):
    """A city with few inhabitants, so that a small model ends in time."""

    name: Literal["Rome", "Oslo"]
    inhabitants: int = pydantic.Field(ge=0, le=9)


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]


WEATHER = openai.pydantic_function_tool(Weather)
STRUCTURED = {**GREEDY, "max_tokens": 40}


def test_parse_gives_a_pydantic_object(client, lightcone):
    (choice,) = client.chat.completions.parse(model=lightcone.model, response_format=City, **STRUCTURED).choices
    assert isinstance(choice.message.parsed, City)
    assert choice.message.refusal is None


async def test_the_async_client_parses(lightcone):
    async with openai.AsyncOpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as client:
        answer = await client.chat.completions.parse(model=lightcone.model, response_format=City, **STRUCTURED)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_a_parse_that_the_limit_cuts_is_the_clients_own_error(client, lightcone):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=lightcone.model, response_format=City, **{**STRUCTURED, "max_tokens": 3})


def test_the_stream_helper_parses_as_it_goes(client, lightcone):
    with client.chat.completions.stream(model=lightcone.model, response_format=City, **STRUCTURED) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, City)
    (done,) = [event for event in events if event.type == "content.done"]
    assert done.parsed == final.choices[0].message.parsed
    assert any(event.type == "content.delta" and event.parsed for event in events)


def test_a_conversation_continues_after_a_tool_call(client, lightcone):
    forced = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    (choice,) = client.chat.completions.parse(model=lightcone.model, **forced, **STRUCTURED).choices
    (call,) = choice.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    messages = [
        *MESSAGES,
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    answer = client.chat.completions.create(
        model=lightcone.model, messages=messages, tools=[WEATHER], tool_choice="none", max_tokens=8
    )
    assert answer.choices[0].message.content


def test_the_stream_helper_sees_a_call_grow(client, lightcone):
    named = {"type": "function", "function": {"name": "Weather"}}
    with client.chat.completions.stream(
        model=lightcone.model, tools=[WEATHER], tool_choice=named, **STRUCTURED
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    assert final.choices[0].finish_reason == "stop"
    pieces = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert "".join(pieces) == call.function.arguments
    (done,) = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert (done.name, done.index) == ("Weather", 0)


def test_the_stream_helper_takes_logprobs_of_tokens_without_text(client, lightcone):
    asked = {**GREEDY, "logprobs": True, "stop": [" ", "."]}
    with client.chat.completions.stream(model=lightcone.model, **asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "logprobs.content.delta" in kinds
    assert len(final.choices[0].logprobs.content) == create(client, lightcone, **asked).usage.completion_tokens


def test_several_forced_calls_stream_with_their_indexes(client, lightcone):
    named = {"type": "function", "function": {"name": "Weather"}}
    asked = {**STRUCTURED, "n": 2, "temperature": 1, "seed": 1}
    seen: dict[int, str] = {}
    for chunk in create(client, lightcone, tools=[WEATHER], tool_choice=named, stream=True, **asked):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or ():
                assert call.index == 0
                seen[choice.index] = seen.get(choice.index, "") + (call.function.arguments or "")
    assert sorted(seen) == [0, 1]
    assert all(Weather.model_validate_json(arguments) for arguments in seen.values())


def test_the_first_request_of_the_readme_is_answered_within_its_limit(client, lightcone):
    """Without a limit half of its answers ran to the end of the context."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    body = json.loads(re.search(r"-d '(\{.*\})'", readme)[1])
    answer = client.chat.completions.create(**{**body, "model": lightcone.model, "stream": False})
    assert 0 < answer.usage.completion_tokens <= body["max_tokens"] <= 500


def test_models_are_listed_and_found(client, lightcone):
    assert lightcone.model in [model.id for model in client.models.list().data]
    assert client.models.retrieve(lightcone.model).id == lightcone.model


@pytest.mark.parametrize(
    ("fields", "kind", "code", "param"),
    [
        ({"temperature": 9}, openai.BadRequestError, "invalid_value", "temperature"),
        ({"messages": []}, openai.BadRequestError, "invalid_value", "messages"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found", "model"),
        (
            {"messages": [{"role": "user", "content": "word " * 20_000}]},
            openai.BadRequestError,
            "context_length_exceeded",
            "messages",
        ),
        ({"response_format": {"type": "xml"}}, openai.BadRequestError, "invalid_value", "response_format.type"),
        ({"web_search_options": {}}, openai.BadRequestError, "unsupported_parameter", "web_search_options"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_raises_the_right_class_before_any_chunk(client, lightcone, fields, kind, code, param, stream):
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": lightcone.model, **GREEDY, "stream": stream, **fields})
    assert (caught.value.code, caught.value.param) == (code, param)


def test_the_overflow_text_is_the_one_clients_look_for(client, lightcone):
    with pytest.raises(
        openai.BadRequestError, match=r"maximum context length is \d+ tokens.*reduce the length of the messages"
    ):
        create(client, lightcone, messages=[{"role": "user", "content": "word " * 20_000}])


def test_a_wrong_key_is_an_authentication_error(lightcone):
    client = openai.OpenAI(api_key="lc_wrong00001_" + "0" * 48, base_url=lightcone.api_url, max_retries=0)
    with client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_every_spelling_of_the_base_url_reaches_a_route(lightcone, base):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.base_url + base, max_retries=0) as client:
        assert client.chat.completions.create(model=lightcone.model, **GREEDY).choices[0].message.content


def test_a_client_that_leaves_a_stream_does_not_disturb_the_next(client, lightcone):
    for _ in range(5):
        stream = create(client, lightcone, max_tokens=500, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    assert create(client, lightcone).choices[0].message.content


def test_the_documents_need_no_key_and_errors_have_a_root_message(lightcone):
    assert httpx.get(f"{lightcone.base_url}/api/schema").status_code == 200
    assert httpx.get(f"{lightcone.base_url}/docs").status_code == 200
    refused = httpx.post(
        f"{lightcone.base_url}/v1/chat/completions", json={}, headers={"Authorization": f"Bearer {lightcone.api_key}"}
    )
    assert refused.status_code == 400
    assert refused.json()["message"] == refused.json()["error"]["message"]
