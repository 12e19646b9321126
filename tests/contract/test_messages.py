"""Anthropic's Messages API of a served Lightcone with a plain client; `make contract` drives the package."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

pytestmark = pytest.mark.live

TURN = {"role": "user", "content": "Say hello in one short sentence."}
GREEDY = {"messages": [TURN], "max_tokens": 12, "temperature": 0}
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "The weather of a city.", "input_schema": CITY}


@pytest.fixture(scope="module")
def client(lightcone):
    headers = {"x-api-key": lightcone.api_key, "anthropic-version": "2023-06-01"}
    with httpx.Client(base_url=lightcone.base_url, headers=headers, timeout=120) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _warm(client):
    """Put the prompt into the prefix cache, as texts are compared and a cold prompt uses other kernels."""
    create(client)


def create(client, **fields):
    response = client.post("/v1/messages", json={**GREEDY, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def stream(client, **fields):
    """Return the data of all events."""
    response = client.post("/v1/messages", json={**GREEDY, **fields, "stream": True})
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


def test_a_message_has_the_text_of_a_chat_completion(client, lightcone):
    body = create(client)
    chat = client.post("/v1/chat/completions", json=GREEDY).json()
    assert body["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == chat["usage"]["completion_tokens"]
    assert body["model"] == lightcone.model
    assert body["stop_reason"] == ("max_tokens" if chat["choices"][0]["finish_reason"] == "length" else "end_turn")


def test_a_stream_joins_to_the_message(client):
    values = stream(client)
    assert [values[0]["type"], values[1]["type"], values[-2]["type"], values[-1]["type"]] == [
        "message_start",
        "ping",
        "message_delta",
        "message_stop",
    ]
    text = "".join(value["delta"]["text"] for value in values if value["type"] == "content_block_delta")
    plain = create(client)
    assert text == plain["content"][0]["text"]
    assert values[-2]["delta"]["stop_reason"] == plain["stop_reason"]
    assert values[-2]["usage"]["output_tokens"] == plain["usage"]["output_tokens"]


def test_a_count_is_the_prompt_of_the_message(client):
    prompt = {"messages": [TURN, {"role": "assistant", "content": "Hel"}], "system": "Be brief.", "tools": [TOOL]}
    counted = client.post("/v1/messages/count_tokens", json=prompt).json()
    usage = create(client, **prompt, max_tokens=1)["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_a_prompt_beyond_the_context_is_counted_but_not_answered(client):
    turns = [{"role": "user", "content": "word " * 20_000}]
    assert client.post("/v1/messages/count_tokens", json={"messages": turns}).json()["input_tokens"] > 10_000
    response = client.post("/v1/messages", json={**GREEDY, "messages": turns})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("prompt is too long: ")


def test_a_conversation_continues_after_a_tool_call(client):
    called = create(client, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=40)
    (use,) = called["content"]
    assert (called["stop_reason"], use["type"], use["name"]) == ("tool_use", "tool_use", "weather")
    assert use["input"]["city"] in ("Rome", "Oslo")
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}]}
    history = [TURN, {"role": "assistant", "content": called["content"]}, result]
    answer = create(client, messages=history, tools=[TOOL], tool_choice={"type": "none"}, max_tokens=8)
    assert answer["content"][0]["text"]


def test_a_call_streams_as_json_text(client):
    values = stream(client, tools=[TOOL], tool_choice={"type": "tool", "name": "weather"}, max_tokens=40)
    starts = [value["content_block"] for value in values if value["type"] == "content_block_start"]
    assert [(start["type"], start["name"], start["input"]) for start in starts] == [("tool_use", "weather", {})]
    text = "".join(value["delta"]["partial_json"] for value in values if value["type"] == "content_block_delta")
    assert json.loads(text)["city"] in ("Rome", "Oslo")
    assert values[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_form_is_kept(client):
    form = {"type": "json_schema", "schema": CITY}
    (block,) = create(client, output_config={"format": form}, max_tokens=40)["content"]
    assert json.loads(block["text"])["city"] in ("Rome", "Oslo")


def test_a_stop_sequence_ends_the_text_before_it(client):
    text = create(client)["content"][0]["text"]
    stop = text[3:6]
    body = create(client, stop_sequences=[stop])
    assert body["content"][0]["text"] == text[: text.index(stop)]
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)


def test_a_begun_answer_is_continued(client):
    counting = {"role": "user", "content": "Count to nine."}
    turns = [counting, {"role": "assistant", "content": "One, two, three,"}]
    chat = {**GREEDY, "messages": turns, "continue_final_message": True}
    expected = client.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
    assert create(client, messages=turns)["content"][0]["text"] == expected


def test_documents_are_read_by_the_worker(client):
    data = base64.b64encode(b"The moon is far away.").decode()
    block = {
        "type": "document",
        "title": "moon.txt",
        "source": {"type": "base64", "media_type": "text/plain", "data": data},
    }
    turns = [{"role": "user", "content": [block, {"type": "text", "text": "How far is the moon?"}]}]
    with_document = client.post("/v1/messages/count_tokens", json={"messages": turns}).json()["input_tokens"]
    assert with_document > client.post("/v1/messages/count_tokens", json={"messages": [TURN]}).json()["input_tokens"]
    broken = {**block, "source": {**block["source"], "media_type": "application/pdf"}}
    response = client.post(
        "/v1/messages", json={**GREEDY, "messages": [{"role": "user", "content": [broken]}], "max_tokens": 1}
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages.0.content.0.source")


def test_fields_unsupported_by_the_model_are_refused_by_their_sent_name(client):
    response = client.post("/v1/messages", json={**GREEDY, "thinking": {"type": "enabled", "budget_tokens": 5}})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "thinking.budget_tokens"
    assert create(client, thinking={"type": "adaptive"})["content"][0]["type"] == "text"


def test_models_are_listed_for_these_clients(client, lightcone):
    listed = client.get("/v1/models").json()
    assert lightcone.model in [entry["id"] for entry in listed["data"]]
    assert client.get(f"/v1/models/{lightcone.model}").json()["type"] == "model"


def test_a_client_that_leaves_a_stream_does_not_disturb_the_next(client):
    for _ in range(3):
        with client.stream("POST", "/v1/messages", json={**GREEDY, "max_tokens": 500, "stream": True}) as response:
            next(response.iter_lines())
    assert create(client)["content"][0]["text"]


def test_a_wrong_key_is_refused_in_this_shape(lightcone):
    response = httpx.post(f"{lightcone.base_url}/v1/messages", json=GREEDY, headers={"x-api-key": "bad"})
    assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")
