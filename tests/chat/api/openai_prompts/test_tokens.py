"""Prompts that are only read: token routes in the forms of vLLM and llama.cpp, and rendered chats."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.openai import tokens
from chat.api.openai.tokens import TOKENIZE_DIALECT
from chat.api.openapi.document import document
from chat.errors import ApiError
from engine.api import Admitted, ErrorCode, RawPrompt, RequestError, Task
from tests.chat.api.conftest import chat, completed

READ = [Admitted(2, 0, 1, (5, 6), "ab", ("a", "b"), 2048), completed(0, 0, 0)]


@pytest.fixture
def reading(scripted):
    scripted.script = list(READ)
    scripted.headers = {"x-ratelimit-remaining-requests": "4"}
    return scripted


async def post(api, path, **body):
    response = await api.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["x-ratelimit-remaining-requests"] == "4"
    return response.json()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize", "/tokenize/", "/v1/tokenize/"])
async def test_a_text_is_counted_and_split_into_tokens(api, reading, path):
    assert await post(api, path, prompt="ab") == {
        "count": 2,
        "max_model_len": 2048,
        "tokens": [5, 6],
        "token_strs": ["a", "b"],
    }
    (request,) = reading.requests
    assert request.task is Task.READ
    assert request.raw == RawPrompt("ab", param="prompt")
    assert (request.prompt.add_special_tokens, request.prompt.returns_ids, request.prompt.returns_tokens) == (
        True,
        True,
        False,
    )
    assert reading.readers[0].num_left == 1


async def test_token_texts_and_special_tokens_follow_the_request(api, reading):
    await post(api, "/tokenize", prompt="ab", return_token_strs=True, add_special_tokens=False)
    (request,) = reading.requests
    assert (request.prompt.add_special_tokens, request.prompt.returns_tokens) == (False, True)


async def test_messages_are_rendered_first(api, reading):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields = {
        "add_generation_prompt": False,
        "continue_final_message": True,
        "chat_template_kwargs": {"a": 1},
        "tools": tools,
    }
    assert (await post(api, "/tokenize", messages=messages, **fields))["count"] == 2
    (request,) = reading.requests
    assert (request.task, request.raw, len(request.messages)) == (Task.READ, None, 2)
    assert (request.prompt.continue_final_message, request.prompt.add_special_tokens) == (True, False)
    assert request.prompt.template_kwargs == {"a": 1}
    assert request.tools[0].name == "f"
    reading.script = list(READ)
    await post(api, "/tokenize", messages=messages, add_special_tokens=True)
    assert reading.requests[1].prompt.add_special_tokens


@given(
    st.lists(st.tuples(st.integers(0, 2**31), st.text(alphabet=st.characters(codec="utf-8"), max_size=4)), max_size=20)
)
def test_token_pieces_form_one_array_for_any_chunk_size(pairs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "PIECES_AT_ONCE", 3)
        written = orjson.dumps(tokens.pieces_json([token_id for token_id, _ in pairs], [text for _, text in pairs]))
    assert orjson.loads(written) == [{"id": token_id, "piece": text} for token_id, text in pairs]


@pytest.mark.parametrize(
    ("sent", "is_ordinary"), [({}, False), ({"parse_special": True}, False), ({"parse_special": False}, True)]
)
async def test_parse_special_of_llama_cpp_is_supported(api, reading, sent, is_ordinary):
    await post(api, "/tokenize", content="<s>", **sent)
    assert [request.raw for request in reading.requests] == [RawPrompt("<s>", param="content", is_ordinary=is_ordinary)]


async def test_content_is_answered_in_the_shape_of_llama_cpp(api, reading):
    assert await post(api, "/tokenize", content="ab") == {"tokens": [5, 6]}
    pieces = await post(api, "/tokenize", content="ab", with_pieces=True, add_special=True)
    assert pieces == {"tokens": [{"id": 5, "piece": "a"}, {"id": 6, "piece": "b"}]}
    first, second = reading.requests
    assert first.raw == RawPrompt("ab", param="content")
    assert (first.prompt.add_special_tokens, second.prompt.add_special_tokens) == (False, True)


async def test_tokens_become_text_under_either_field_name(api, reading):
    assert await post(api, "/detokenize", tokens=[5, 6]) == {"prompt": "ab", "content": "ab"}
    (request,) = reading.requests
    assert (request.task, request.raw.token_ids, request.raw.param) == (Task.READ, (5, 6), "tokens")
    assert request.prompt.returns_text
    reading.script = [Admitted(0, 0, 1, prompt_text=""), completed(0, 0, 0)]
    assert await post(api, "/v1/detokenize", tokens=[]) == {"prompt": "", "content": ""}


async def test_a_chat_can_be_rendered_without_generation(api, reading):
    body = await post(
        api, "/v1/chat/completions/render", **chat(stream=True, max_tokens=9, stop=["x"], temperature=0.5, seed=3)
    )
    assert body == {
        "object": "chat.completion.prompt",
        "model": "org/tiny",
        "prompt": "ab",
        "token_ids": [5, 6],
        "num_tokens": 2,
        "max_model_len": 2048,
        "sampling_params": {
            "temperature": 0.5,
            "top_p": 1.0,
            "top_k": 7,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": 3,
            "max_tokens": 9,
            "min_tokens": 0,
            "n": 1,
            "stop": ["x"],
            "stop_token_ids": [],
            "ignore_eos": False,
            "skip_special_tokens": True,
        },
    }
    assert reading.requests[0].task is Task.READ


@pytest.mark.parametrize(("num_tokens", "left"), [(2, 2046), (2047, 1), (2048, None), (9999, None)])
async def test_the_limit_of_a_rendered_chat_is_the_rest_of_the_context(api, reading, num_tokens, left):
    reading.script[0] = Admitted(num_tokens, 0, 1, (5,), "a", None, 2048)
    assert (await post(api, "/chat/completions/render", **chat()))["sampling_params"]["max_tokens"] == left


BAD = [
    ("/tokenize", {}, "missing_required_parameter", "prompt"),
    ("/tokenize", {"prompt": None}, "missing_required_parameter", "prompt"),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "invalid_value", "prompt"),
    ("/tokenize", {"prompt": "a", "content": "a"}, "invalid_value", "content"),
    ("/tokenize", {"prompt": ["a"]}, "invalid_type", "prompt"),
    ("/tokenize", {"prompt": "x" * (tokens.MAX_CHARS + 1)}, "invalid_value", "prompt"),
    ("/tokenize", {"messages": []}, "invalid_value", "messages"),
    ("/tokenize", {"messages": [5]}, "invalid_type", "messages.0"),
    (
        "/tokenize",
        {"messages": [{"role": "user", "content": "a"}], "chat_template": "x"},
        "untrusted_chat_template",
        "chat_template",
    ),
    ("/detokenize", {}, "missing_required_parameter", "tokens"),
    ("/detokenize", {"tokens": "5"}, "invalid_type", "tokens"),
    ("/detokenize", {"tokens": [5, -1]}, "invalid_value", "tokens.1"),
    ("/detokenize", {"tokens": [5, True]}, "invalid_type", "tokens.1"),
    ("/detokenize", {"tokens": [1] * (tokens.MAX_CHARS // 4 + 1)}, "invalid_value", "tokens"),
    ("/v1/chat/completions/render", {}, "missing_required_parameter", "messages"),
    ("/v1/chat/completions/render", chat(temperature=9), "invalid_value", "temperature"),
]


@pytest.mark.parametrize(
    ("path", "body", "code", "param"), BAD, ids=[f"{row[0]}-{number}" for number, row in enumerate(BAD)]
)
async def test_an_invalid_request_is_refused_with_its_field(api, reading, path, body, code, param):
    response = await api.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


async def test_an_engine_refusal_names_the_sent_field(api, reading):
    reading.script = [RequestError(ErrorCode.INVALID_VALUE, "tokens.1 is no token", "tokens.1")]
    response = await api.post("/detokenize", json={"tokens": [5, 999_999]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens.1")
    assert response.headers["x-ratelimit-remaining-requests"] == "4"
    assert reading.readers[0].num_left == 1


def test_tokenize_ignores_fields_that_do_not_affect_the_prompt():
    TOKENIZE_DIALECT.parse(chat(temperature="hot", add_special_tokens=None))
    with pytest.raises(ApiError):
        TOKENIZE_DIALECT.parse(chat(add_generation_prompt="maybe"))


@pytest.mark.parametrize("path", ["/version", "/version/"])
async def test_the_version_requires_a_key(api, path):
    from django.conf import settings

    assert (await api.get(path, headers={"Authorization": ""})).status_code == 401
    response = await api.get(path)
    assert response.json() == {"version": settings.LIGHTCONE_VERSION}
    assert document()["info"]["version"] == settings.LIGHTCONE_VERSION
