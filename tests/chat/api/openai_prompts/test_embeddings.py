"""Embeddings: one run per input, vectors in input order, as numbers or as base64."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.openai.embeddings import EMBEDDINGS, vector_base64
from chat.errors import ApiError
from engine.api import Admitted, Embedded, EmbedOptions, ErrorCode, RawPrompt, RequestError, Task
from tests.chat.api.conftest import completed

ROUTE = "/v1/embeddings"
VECTOR = (0.5, -0.25, 0.75)


@pytest.fixture
def embedding(scripted):
    scripted.script = [Admitted(3, 0, 1), Embedded(VECTOR), completed(3, 0, 0)]
    return scripted


async def embed(api, **fields):
    response = await api.post(ROUTE, json={"input": "a", **fields})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/v1/embeddings/"])
async def test_an_answer_is_a_list_of_vectors(api, embedding, path):
    assert (await api.post(path, json={"input": "a"})).json() == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25, 0.75]}],
        "model": "org/tiny",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    (request,) = embedding.requests
    assert (request.task, request.embed, request.raw) == (Task.EMBED, EmbedOptions(), RawPrompt("a", param="input"))


async def test_every_input_is_a_run_and_all_count_as_one_request(api, embedding):
    body = await embed(api, input=["a", "b", [5, 6]], dimensions=2, pooling="last", truncate_prompt_tokens=-1, user="u")
    assert [item["index"] for item in body["data"]] == [0, 1, 2]
    assert body["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert embedding.further == [False, True, True]
    assert {request.embed for request in embedding.requests} == {EmbedOptions("last", 2)}
    assert {request.prompt.truncate_to for request in embedding.requests} == {-1}
    assert [request.raw.param for request in embedding.requests] == ["input.0", "input.1", "input.2"]
    assert embedding.traces[0].user_label == "u"


async def test_more_inputs_than_may_run_at_once_are_answered_in_order(api, embedding):
    body = await embed(api, input=[str(number) for number in range(100)])
    assert [item["index"] for item in body["data"]] == list(range(100))
    assert [request.raw.text for request in embedding.requests] == [str(number) for number in range(100)]


async def test_base64_holds_the_same_numbers(api, embedding):
    (item,) = (await embed(api, encoding_format="base64"))["data"]
    assert struct.unpack("<3f", base64.b64decode(item["embedding"])) == VECTOR


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
def test_any_vector_comes_back_from_base64(vector):
    raw = base64.b64decode(vector_base64(vector))
    assert list(struct.unpack(f"<{len(vector)}f", raw)) == vector


async def test_a_refused_input_refuses_the_request(api, embedding):
    embedding.script = [RequestError(ErrorCode.INVALID_VALUE, "dimensions must be at most 3, got 9", "dimensions")]
    response = await api.post(ROUTE, json={"input": ["a", "b"], "dimensions": 9})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "dimensions")


BAD = [
    ({}, "missing_required_parameter", "input"),
    ({"input": []}, "invalid_value", "input"),
    ({"input": {"a": 1}}, "invalid_type", "input"),
    ({"input": ["a", None]}, "invalid_type", "input.1"),
    ({"input": ["a"] * 2049}, "invalid_value", "input"),
    ({"input": "a", "encoding_format": "hex"}, "invalid_value", "encoding_format"),
    ({"input": "a", "dimensions": 0}, "invalid_value", "dimensions"),
    ({"input": "a", "pooling": "cls"}, "invalid_value", "pooling"),
    ({"input": "a", "normalize": False}, "unsupported_parameter", "normalize"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "invalid_value", "truncate_prompt_tokens"),
    ({"input": "a", "cache_salt": ""}, "invalid_value", "cache_salt"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD, ids=str)
def test_an_invalid_request_is_refused_with_its_field(body, code, param):
    with pytest.raises(ApiError) as refused:
        EMBEDDINGS.parse(body)
    assert (refused.value.code, refused.value.param) == (code, param)
