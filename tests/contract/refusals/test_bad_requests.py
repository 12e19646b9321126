"""Bad requests at a live server: each gets its plain 400 without effect on others.

While a batch of them is refused, a greedy stream of another client gives the same text as alone, and the next request
is served.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.chat.api.request.bad_requests import BAD
from tests.chat.api.request.bad_values import Bad, tool
from tests.contract.refusals.conftest import QUESTION, post, streamed_text

BATCH = 60
STREAM_TOKENS = 48
NO_BODIES = [
    b"",
    b" ",
    b"[]",
    b'"x"',
    b"5",
    b"null",
    b"true",
    b"{",
    b'{"temperature": NaN}',
    b'{"temperature": Infinity}',
    b'{"temperature": 1e999}',
    b'{"logit_bias": {"5": -1e400}}',
    b'{"n": ' + b"9" * 5_000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"user": "\\ud800"}',
    b'{"user": "\xff"}',
    b'{"a": 1,}',
    b"{'a': 1}",
]
FAR_ID = 10_000_000
NOT_OF_THE_MODEL = [
    Bad({"messages": [{"role": "usr", "content": "hi"}]}, "messages.0.role", says="must be one of system"),
    Bad({"truncate_prompt_tokens": 1_000_000}, "truncate_prompt_tokens"),
    Bad({"stop_token_ids": [FAR_ID], "min_tokens": 5}, "stop_token_ids"),
    Bad({"allowed_token_ids": [FAR_ID]}, "allowed_token_ids"),
    Bad({"logit_bias": {str(FAR_ID): 1}}, "logit_bias"),
    Bad({"logprobs": True, "logprob_token_ids": [FAR_ID]}, "logprob_token_ids"),
    Bad({"bad_words": ["many words " * 90] * 20}, "bad_words", says="1024"),
    Bad({"messages": [{"role": "user", "content": "word " * 20_000}]}, "messages", "context_length_exceeded"),
    Bad({"structured_outputs": {"json": {"type": "foo"}}}, "structured_outputs.json"),
    Bad({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json", says="not"),
    Bad({"structured_outputs": {"json": {"$ref": "http://example.com/x"}}}, "structured_outputs.json"),
    Bad({"structured_outputs": {"json": {"$ref": "#"}}}, "structured_outputs.json"),
    Bad({"structured_outputs": {"json": {"enum": list(range(100_000))}}}, "structured_outputs.json"),
    Bad({"structured_outputs": {"json": {"type": "array", "minItems": 1_000_000_000}}}, "structured_outputs.json"),
    Bad({"structured_outputs": {"regex": "foo**"}}, "structured_outputs.regex"),
    Bad({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    Bad({"structured_outputs": {"regex": "(?=a)b"}}, "structured_outputs.regex"),
    Bad({"structured_outputs": {"regex": "([a-z]{1,1000}){1,1000}"}}, "structured_outputs.regex"),
    Bad({"structured_outputs": {"grammar": 'root ::= root "a"'}}, "structured_outputs.grammar"),
    Bad({"structured_outputs": {"grammar": 'start ::= "a"'}}, "structured_outputs.grammar"),
    Bad({"structured_outputs": {"grammar": 'root ::= "a"\nroot ::= "b"'}}, "structured_outputs.grammar"),
    Bad({"structured_outputs": {"grammar": "root ::= " + "(" * 30_000}}, "structured_outputs.grammar"),
    Bad({"structured_outputs": {"structural_tag": '{"format": {"type": "x"}}'}}, "structured_outputs.structural_tag"),
    Bad({"response_format": {"type": "json_object", "schema": {"type": 5}}}, "response_format.schema"),
    Bad({"tools": [tool(parameters={"properties": {"x": {"pattern": "("}}})]}, "tools.0.function.parameters"),
    Bad({"tools": [tool(parameters={"properties": {"x": {"type": 5}}})]}, "tools.0.function.parameters"),
]


def assert_refused(client: httpx.Client, bad: Bad, **more: Any) -> None:
    response = post(client, bad.body() | more)
    described = (bad.name, response.status_code, response.text[:500])
    assert response.status_code == 400, described
    assert response.headers["content-type"] == "application/json", described
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (bad.param, bad.code), described
    assert bad.says in error["message"], described
    assert len(response.content) <= 16_384, described


@pytest.fixture(scope="module")
def alone(client: httpx.Client) -> str:
    """Return the text of the stream without other requests."""
    return streamed_text(client, STREAM_TOKENS)


def refuse_beside_a_stream(client: httpx.Client, batch: list[Bad], alone: str, **more: Any) -> None:
    with ThreadPoolExecutor(1) as other:
        beside = other.submit(streamed_text, client, STREAM_TOKENS)
        for bad in batch:
            assert_refused(client, bad, **more)
        assert beside.result() == alone
    assert post(client, QUESTION | {"max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("start", range(0, len(BAD), BATCH))
def test_requests_refused_by_the_schema_do_not_disturb_a_stream(client, alone, start):
    refuse_beside_a_stream(client, BAD[start : start + BATCH], alone)


def test_streams_refused_by_the_schema_do_not_disturb_a_stream(client, alone):
    refuse_beside_a_stream(client, [bad for bad in BAD[::5] if bad.may_stream], alone, stream=True)


@pytest.mark.parametrize("is_stream", [False, True])
def test_requests_refused_by_the_model_do_not_disturb_a_stream(client, alone, is_stream):
    short = [replace(bad, fields={"max_completion_tokens": 8} | bad.fields) for bad in NOT_OF_THE_MODEL]
    refuse_beside_a_stream(client, short, alone, stream=is_stream)


@pytest.mark.parametrize("body", NO_BODIES, ids=lambda body: repr(body[:20]))
def test_bodies_that_are_no_json_object_are_refused(client, alone, body):
    response = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
    assert post(client, QUESTION | {"max_tokens": 1}).status_code == 200
