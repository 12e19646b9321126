"""Requests in Ollama's shape, as the engine gets them."""

import json

import pytest

from chat.api.ollama.translation import chat_parse, generate_parse
from engine.api import Completed, ConstraintKind, Embedded, Outcome, Task, Timings, Usage
from tests.chat.api.conftest import ADMITTED, KEY
from tests.chat.api.ollama.shapes import CHAT, TURN, chat, generate, written

IGNORED = "x-lightcone-ignored"
CALL = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
READ = [ADMITTED, Completed(Outcome.FINISHED, Usage(), Timings(0.0))]


async def test_options_reach_the_engine_under_its_names(api, scripted):
    options = {
        "num_predict": 7,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
        "min_p": 0.1,
        "repeat_penalty": 1.25,
        "repeat_last_n": -1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "seed": 42,
        "stop": ["x"],
        "num_ctx": 4096,
        "typical_p": 1,
    }
    response = await chat(api, options=options)
    assert response.status_code == 200, response.text
    assert IGNORED not in response.headers
    [request] = scripted.requests
    sampling, stop = request.sampling, request.stop
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 3, 0.9, 0.1)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.25, 0.5, 0.25)
    assert (sampling.seed, stop.max_tokens, stop.stop) == (42, 7, ("x",))
    assert (scripted.traces[0].dialect, scripted.traces[0].route) == ("ollama", CHAT)


@pytest.mark.parametrize("limit", [-2, -1, 0])
async def test_no_limit_of_tokens_is_said_in_three_ways(api, scripted, limit):
    await chat(api, options={"num_predict": limit})
    assert scripted.requests[0].stop.max_tokens is None


async def test_an_empty_window_switches_the_penalty_of_repetitions_off(api, scripted):
    await chat(api, options={"repeat_penalty": 1.5, "repeat_last_n": 0})
    assert scripted.requests[0].sampling.repetition_penalty == 1


async def test_what_has_no_effect_is_named(api, scripted):
    options = {"num_gpu": 1, "mirostat": 2, "repeat_last_n": 64, "num_thread": None, "temperature": 0}
    response = await chat(api, options=options, keep_alive="5m", shift=True)
    assert response.headers[IGNORED] == ("keep_alive, options.num_gpu, options.mirostat, options.repeat_last_n, shift")


@pytest.mark.parametrize("name", ["org/tiny", "tiny", "tiny:latest", "org/tiny:latest", "", None])
async def test_a_name_may_have_the_usual_tag(api, scripted, name):
    assert (await chat(api, model=name)).json()["model"] == "org/tiny"


async def test_formats_become_constraints(api, scripted):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    await chat(api, format=schema)
    assert json.loads(scripted.requests[0].constraint.source) == schema


async def test_the_format_json_is_any_object(api, scripted):
    await chat(api, format="json")
    assert scripted.requests[0].constraint.kind is ConstraintKind.JSON_OBJECT


@pytest.mark.parametrize("form", ["", None])
async def test_an_empty_format_is_none(api, scripted, form):
    await chat(api, format=form)
    assert scripted.requests[0].constraint is None


@pytest.mark.parametrize(
    ("think", "expected"),
    [
        (None, {}),
        (True, {"enable_thinking": True}),
        (False, {"enable_thinking": False}),
        ("low", {"reasoning_effort": "low", "enable_thinking": True}),
    ],
)
async def test_thinking_reaches_the_template(api, scripted, think, expected):
    await chat(api, think=think)
    assert scripted.requests[0].prompt.template_kwargs == expected


async def test_a_conversation_with_calls_gets_ids(api, scripted):
    messages = [
        {"role": "system", "content": "s", "images": []},
        TURN,
        {"role": "assistant", "content": "", "thinking": "so", "tool_calls": [CALL, {**CALL, "id": "mine"}, CALL]},
        {"role": "tool", "content": "sun", "tool_name": "weather"},
        {"role": "tool", "content": "rain", "tool_call_id": "mine"},
        {"role": "tool", "content": "snow"},
    ]
    assert (await chat(api, messages=messages, tools=[TOOL])).status_code == 200
    [request] = scripted.requests
    calls = request.messages[2]["tool_calls"]
    assert [call["function"] for call in calls] == [{"name": "weather", "arguments": {"city": "Oslo"}}] * 3
    first, second, third = (call["id"] for call in calls)
    assert second == "mine"
    assert [message["tool_call_id"] for message in request.messages[3:]] == [first, second, third]
    assert request.messages[3]["name"] == "weather"
    assert request.messages[2]["reasoning"] == "so"
    assert [tool.name for tool in request.tools] == ["weather"]


async def test_a_last_message_of_the_assistant_is_continued(api, scripted):
    await chat(api, messages=[TURN, {"role": "assistant", "content": "One,"}])
    assert scripted.requests[0].prompt.continue_final_message


async def test_a_prompt_is_a_message_of_the_user(api, scripted):
    await generate(api, system="Be brief.", context=[], template="", images=[])
    assert [(one["role"], one["content"]) for one in scripted.requests[0].messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]


@pytest.mark.parametrize(("fields", "suffix"), [({"raw": True}, None), ({"suffix": "end"}, "end")])
async def test_a_raw_prompt_has_no_template(api, scripted, fields, suffix):
    assert (await generate(api, **fields)).status_code == 200
    [request] = scripted.requests
    assert (request.raw.text, request.raw.suffix, request.messages) == ("hi", suffix, ())
    assert request.prompt.add_special_tokens


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.parametrize("stream", [None, True])
async def test_without_a_prompt_the_model_is_loaded(api, scripted, path, stream):
    scripted.script = list(READ)
    response = await api.post(path, json={"model": "tiny", "stream": stream, "keep_alive": -1})
    assert response.headers["content-type"] == "application/json"
    body = written(response.json())
    content = {"message": {"role": "assistant", "content": ""}} if path == CHAT else {"response": ""}
    assert body == {"model": "org/tiny", **content, "done": True, "done_reason": "load"}
    assert scripted.requests[0].task is Task.READ


async def test_inputs_become_vectors_in_their_order(api, scripted):
    usage = Completed(Outcome.FINISHED, Usage(2), Timings(1.0, 1.5, None, 3.0))
    scripted.script = [ADMITTED, Embedded((0.5, 1.0)), usage]
    body = (await api.post("/api/embed", json={"model": "tiny", "input": ["a", "b"], "dimensions": 2})).json()
    assert body == {
        "model": "org/tiny",
        "embeddings": [[0.5, 1.0], [0.5, 1.0]],
        "total_duration": 2_000_000_000,
        "load_duration": 500_000_000,
        "prompt_eval_count": 4,
    }
    first, second = scripted.requests
    assert (first.task, first.embed.dimensions, first.raw.text, second.raw.text) == (Task.EMBED, 2, "a", "b")
    assert (first.prompt.truncate_to, first.prompt.truncation_side) == (-1, "right")
    assert scripted.further == [False, True]


async def test_the_older_route_makes_one_vector(api, scripted):
    scripted.script = [ADMITTED, Embedded((0.5, 1.0)), READ[-1]]
    assert (await api.post("/api/embeddings", json={"prompt": "a"})).json() == {"embedding": [0.5, 1.0]}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/api/embed", {"input": []}, ("embeddings", [])),
        ("/api/embed", {}, ("embeddings", [])),
        ("/api/embeddings", {}, ("embedding", [])),
    ],
)
async def test_without_an_input_the_model_is_loaded(api, scripted, path, body, expected):
    scripted.script = list(READ)
    answer = (await api.post(path, json=body)).json()
    assert answer[expected[0]] == expected[1]
    assert scripted.requests[0].task is Task.READ


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
async def test_bodies_are_json_whatever_their_type_says(api, scripted, kind):
    """`curl -d` says that its body is that of a form, and Ollama's documentation has curl on every page."""
    body = json.dumps({"messages": [TURN], "stream": False})
    response = await api.post(CHAT, content=body, headers={"Content-Type": kind, "Authorization": f"Bearer {KEY}"})
    assert response.status_code == 200


def test_images_are_parts_behind_the_text():
    image, other = (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}} for data in ("aQ==", "bQ==")
    )
    parsed = chat_parse({"model": "m", "messages": [TURN, {**TURN, "images": ["aQ==", "bQ=="]}]})
    assert parsed.messages[1] == {**TURN, "content": [{"type": "text", "text": TURN["content"]}, image, other]}
    assert parsed.field_names("messages.1.content.2.image_url.url") == "messages.1.images.1"
    parsed = generate_parse({"model": "m", "images": ["aQ=="], "system": "s"})
    assert parsed.messages[1] == {"role": "user", "content": [image]}
    assert parsed.field_names("messages.1.content.0.image_url") == "images.0"
