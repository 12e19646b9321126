"""Refused requests: one sentence that begins with the field as it was sent, and the status."""

import pytest

from engine.api import EngineUnavailable, ErrorCode
from tests.chat.api.conftest import HELLO
from tests.chat.api.ollama.shapes import TURN, chat, generate

INVALID, UNSUPPORTED, MISSING, TYPE = (
    "invalid_value",
    "unsupported_parameter",
    "missing_required_parameter",
    "invalid_type",
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}
CHATS = [
    ({"options": {"temperature": 9}}, INVALID, "options.temperature"),
    ({"options": {"repeat_penalty": 0}}, INVALID, "options.repeat_penalty"),
    ({"options": {"num_predict": 2**40}}, INVALID, "options.num_predict"),
    ({"options": {"num_predict": "many"}}, TYPE, "options.num_predict"),
    ({"options": {"top_p": 2}}, INVALID, "options.top_p"),
    ({"options": {"typical_p": 0.7}}, UNSUPPORTED, "options.typical_p"),
    ({"options": {"num_ctx": 4097}}, INVALID, "options.num_ctx"),
    ({"options": {"num_ctx": 0}}, INVALID, "options.num_ctx"),
    ({"options": {"stop": [""]}}, INVALID, "options.stop.0"),
    ({"options": []}, TYPE, "options"),
    ({"format": "xml"}, INVALID, "format"),
    ({"format": 5}, INVALID, "format"),
    ({"think": "hard"}, INVALID, "think"),
    ({"keep_alive": True}, TYPE, "keep_alive"),
    ({"top_logprobs": -1}, INVALID, "top_logprobs"),
    ({"messages": "hi"}, TYPE, "messages"),
    ({"messages": ["hi"]}, TYPE, "messages.0"),
    ({"messages": [{"role": 5, "content": "x"}]}, TYPE, "messages.0.role"),
    ({"messages": [{"role": "user", "content": 5}]}, TYPE, "messages.0.content"),
    ({"messages": [TURN, {**TURN, "images": ["aGk="]}]}, UNSUPPORTED, "messages.1.images.0"),
    ({"messages": [{**TURN, "images": "aGk="}]}, TYPE, "messages.0.images"),
    ({"messages": [{**TURN, "images": ["aGk=", 5]}]}, TYPE, "messages.0.images.1"),
    ({"messages": [{"role": "assistant", "thinking": 5}, TURN]}, TYPE, "messages.0.thinking"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}, TURN]}, INVALID, "messages.0.tool_calls.0.function"),
    ({"messages": [TURN, {"role": "tool", "tool_name": 5}]}, TYPE, "messages.1.tool_name"),
    ({"tools": [TOOL]}, INVALID, "tools.0.function.parameters.type"),
    ({"tools": {}}, TYPE, "tools"),
]
PROMPTS = [
    ({"context": [1, 2]}, UNSUPPORTED, "context"),
    ({"template": "{{ .Prompt }}"}, UNSUPPORTED, "template"),
    ({"images": ["aGk="]}, UNSUPPORTED, "images.0"),
    ({"images": "aGk="}, TYPE, "images"),
    ({"images": [5]}, TYPE, "images.0"),
    ({"images": ["aGk="], "raw": True}, INVALID, "images"),
    ({"raw": True, "system": "s"}, INVALID, "system"),
    ({"suffix": "x", "system": "s"}, INVALID, "system"),
    ({"prompt": 5}, TYPE, "prompt"),
]


def assert_refused(response, status, code, param):
    body = response.json()
    assert (response.status_code, body["code"], body["param"]) == (status, code, param), body
    assert set(body) == {"error", "code", "param"}
    if param:
        assert body["error"].startswith(f"{param} "), body


@pytest.mark.parametrize(("fields", "code", "param"), CHATS)
async def test_a_bad_chat_names_its_field(api, scripted, fields, code, param):
    assert_refused(await chat(api, **fields), 400, code, param)
    assert scripted.requests == []


@pytest.mark.parametrize(("fields", "code", "param"), PROMPTS)
async def test_a_bad_prompt_names_its_field(api, scripted, fields, code, param):
    assert_refused(await generate(api, **fields), 400, code, param)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": 5}, TYPE, "input"),
        ({"input": ["a", 5]}, TYPE, "input.1"),
        ({"input": "a", "dimensions": 0}, INVALID, "dimensions"),
        ({"input": "a", "options": {"num_ctx": 10**6}}, INVALID, "options.num_ctx"),
    ],
)
async def test_bad_inputs_name_their_field(api, scripted, body, code, param):
    assert_refused(await api.post("/api/embed", json=body), 400, code, param)


async def test_a_long_context_that_nobody_asks_for_is_no_fault(api, scripted):
    assert (await chat(api, options={"num_ctx": 4096})).status_code == 200


async def test_an_unknown_model_is_404_in_words_that_clients_know(api):
    response = await chat(api, model="llama9")
    assert response.status_code == 404
    assert response.json()["error"].startswith("model not found: The model 'llama9' does not exist")


async def test_a_missing_key_is_401_and_a_busy_server_503(api, scripted):
    response = await api.post("/api/chat", json={"messages": [TURN]}, headers={"Authorization": ""})
    assert (response.status_code, response.json()["code"]) == (401, "invalid_api_key")
    scripted.refusal = EngineUnavailable(ErrorCode.MODEL_UNLOADED, "No worker.")
    response = await chat(api)
    assert (response.status_code, response.json()["error"]) == (503, "No worker.")
    assert response.headers["retry-after"] == "1"


async def test_bodies_that_are_no_json_object_are_refused(api):
    for content in (b"", b"{", b"[]"):
        response = await api.post("/api/chat", content=content)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_json"), content


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/push", "/api/blobs/sha256:0", "/api/chat/x"])
async def test_other_paths_are_404_in_this_shape(api, path):
    response = await api.post(path, json={})
    assert (response.status_code, set(response.json())) == (404, {"error", "code", "param"})
    assert (await api.post(path, json={}, headers={"Authorization": ""})).status_code == 401


async def test_other_methods_are_405(api, scripted):
    scripted.script = list(HELLO)
    response = await api.get("/api/chat")
    assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")
