"""The path of a completion request: what is asked of the service, what comes back, and that a run is always left."""

import asyncio
import json
from dataclasses import replace

import pytest
from django.conf import settings

from chat.services.completions import LimitExceeded
from chat.services.limits import LimitKind
from engine.api import EngineFailure, EngineUnavailable, ErrorCode, Failed, FinishReason, Outcome, RequestError, TokenLogprob, TopLogprob
from tests.chat.dialects.conftest import ADMITTED, HELLO, KEY, MODEL, chat, completed, delta, finished, frames

ROUTE = "/v1/chat/completions"


async def post(api, **fields):
    return await api.post(ROUTE, json=chat(**fields))


# Not streamed.


async def test_the_answer_is_the_whole_specified_object(api, scripted):
    response = await post(api, model="tiny", user="ann")
    body = response.json()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert body["id"] == "chatcmpl-" + response.headers["x-request-id"]
    assert body["object"] == "chat.completion"
    assert isinstance(body["created"], int)
    assert body["model"] == MODEL.name
    assert body["system_fingerprint"].startswith("fp_")
    assert (body["prompt_logprobs"], body["prompt_token_ids"], body["kv_transfer_params"]) == (None, None, None)
    assert "service_tier" not in body
    (choice,) = body["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
        "reasoning_content": None,
    }
    assert {name: choice[name] for name in ("index", "logprobs", "finish_reason", "stop_reason", "token_ids")} == {
        "index": 0,
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": None,
    }
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    }


async def test_the_service_is_asked_for_what_the_body_says(api, scripted):
    await post(
        api,
        temperature=0.005,
        seed=-1,
        max_tokens=9,
        max_completion_tokens=5,
        stop="x",
        stop_token_ids=[7],
        min_tokens=2,
        cache_salt="s",
        metadata={"a": "b"},
        logprobs=True,
        top_logprobs=2,
        user="ann",
    )
    (request,) = scripted.requests
    assert request.model == MODEL.name
    assert request.messages == ({"role": "user", "content": "hi"},)
    assert request.sampling.temperature == 0.01
    assert request.sampling.seed is None
    assert request.sampling.top_k == 7, "the model's own default"
    assert (request.stop.max_tokens, request.stop.min_tokens, request.stop.stop, request.stop.stop_token_ids) == (5, 2, ("x",), (7,))
    assert (request.logprobs.enabled, request.logprobs.top) == (True, 2)
    assert (request.tenant, request.cache_salt) == ("1", "s")
    assert request.deadline_at - request.arrived_at == settings.LIGHTCONE_LIMITS.request_timeout
    (trace,) = scripted.traces
    assert (trace.dialect, trace.route, trace.is_stream, trace.user_label, trace.metadata) == ("lightcone", ROUTE, False, "ann", {"a": "b"})


async def test_choices_keep_their_index_order_whatever_finishes_first(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("b", 1),
        delta("a", 0),
        finished(1, FinishReason.LENGTH),
        finished(0, FinishReason.STOP, "end", text="!"),
        completed(),
    ]
    body = (await post(api, n=2)).json()
    assert [(c["index"], c["message"]["content"], c["finish_reason"], c["stop_reason"]) for c in body["choices"]] == [
        (0, "a!", "stop", "end"),
        (1, "b", "length", None),
    ]


async def test_logprobs_hold_bytes_alternatives_and_no_infinities(api, scripted):
    entry = TokenLogprob(5, -0.5, "é", "é".encode(), (TopLogprob(5, -0.5, "é", "é".encode()), TopLogprob(6, float("-inf"), "x", b"x")))
    scripted.script = [ADMITTED, delta("é", logprobs=(entry,)), finished(), completed()]
    (choice,) = (await post(api, logprobs=True, top_logprobs=2)).json()["choices"]
    assert choice["logprobs"] == {
        "content": [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [195, 169],
                "top_logprobs": [{"token": "é", "logprob": -0.5, "bytes": [195, 169]}, {"token": "x", "logprob": -9999.0, "bytes": [120]}],
            }
        ],
        "refusal": None,
    }


async def test_the_tier_that_was_used_is_told_to_those_who_sent_one(api, scripted):
    assert (await post(api, service_tier="auto")).json()["service_tier"] == "default"


async def test_without_a_generation_prompt_the_role_is_the_last_messages(api, scripted):
    assert (await post(api, add_generation_prompt=False)).json()["choices"][0]["message"]["role"] == "user"


# Streamed.


async def test_a_stream_is_role_deltas_finish_and_done(api, scripted):
    response = await post(api, stream=True)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    *chunks, done = frames(response.text)
    assert done == "[DONE]"
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "Hel"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "lo"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": None},
    ]
    heads = [{name: chunk[name] for name in ("id", "object", "created", "model", "system_fingerprint")} for chunk in chunks]
    assert all(head == heads[0] for head in heads)
    assert heads[0]["id"] == "chatcmpl-" + response.headers["x-request-id"]
    assert heads[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in chunk for chunk in chunks)
    assert scripted.readers[0].num_left == 1


async def test_all_role_chunks_come_first_then_choices_interleave_and_each_finishes_once(api, scripted):
    scripted.script = [ADMITTED, delta("b", 1), delta("a", 0), finished(1), delta("c", 0), finished(0, text="d"), completed()]
    *chunks, _ = frames((await post(api, stream=True, n=2)).text)
    seen = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]
    assert seen == [
        (0, {"role": "assistant", "content": ""}, None),
        (1, {"role": "assistant", "content": ""}, None),
        (1, {"content": "b"}, None),
        (0, {"content": "a"}, None),
        (1, {}, "stop"),
        (0, {"content": "c"}, None),
        (0, {"content": "d"}, "stop"),
    ]


async def test_usage_comes_once_last_with_no_choices_and_is_null_before(api, scripted):
    *chunks, done = frames((await post(api, stream=True, stream_options={"include_usage": True})).text)
    assert done == "[DONE]"
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 5


async def test_running_usage_counts_the_choices_own_tokens(api, scripted):
    *chunks, _ = frames((await post(api, stream=True, stream_options={"continuous_usage_stats": True})).text)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 2, 2]
    assert all(chunk["usage"]["prompt_tokens"] == 3 for chunk in chunks)


async def test_a_step_without_visible_text_sends_nothing(api, scripted):
    scripted.script = [ADMITTED, delta(""), delta("x"), finished(), completed()]
    *chunks, _ = frames((await post(api, stream=True)).text)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"role": "assistant", "content": ""}, {"content": "x"}, {}]


async def test_logprobs_stream_with_their_tokens_even_when_text_is_held_back(api, scripted):
    entry = TokenLogprob(5, -0.5, "x", b"x")
    scripted.script = [ADMITTED, delta("", logprobs=(entry,)), finished(text="x"), completed()]
    *chunks, _ = frames((await post(api, stream=True, logprobs=True)).text)
    assert chunks[1]["choices"][0]["logprobs"]["content"][0]["token"] == "x"


async def test_output_that_imitates_the_transport_stays_inside_one_json_string(api, scripted):
    text = '\n\nevent: execute\ndata: [DONE]\n\n"\u2028\u2029\x85\\'
    scripted.script = [ADMITTED, delta(text), finished(), completed()]
    response = await post(api, stream=True)
    assert response.text.isascii()
    *chunks, done = frames(response.text)
    assert chunks[1]["choices"][0]["delta"]["content"] == text
    assert done == "[DONE]"
    assert response.text.count("[DONE]") == 2


async def test_a_silence_is_a_ping_comment_with_one_newline(api, scripted):
    scripted.script = [ADMITTED, None, delta("x"), None, finished(), completed()]
    text = (await post(api, stream=True)).text
    assert text.startswith(": ping\ndata: ")
    assert text.count(": ping\n") == 2
    assert ": ping\n\n" not in text
    assert len(frames(text)) == 4


async def test_a_failure_after_the_first_byte_is_one_error_frame_then_done(api, scripted):
    scripted.script = [ADMITTED, delta("x"), Failed(ErrorCode.ENGINE_ERROR, "The engine failed.")]
    response = await post(api, stream=True, stream_options={"include_usage": True})
    *chunks, error, done = frames(response.text)
    assert response.status_code == 200
    assert error == {"error": {"message": "The engine failed.", "type": "server_error", "param": None, "code": "engine_error"}}
    assert done == "[DONE]"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert scripted.readers[0].num_left == 1


async def test_a_defect_while_streaming_tells_no_details(api, scripted):
    scripted.script = [ADMITTED, delta("x"), RuntimeError("secret at 0x1234")]
    text = (await post(api, stream=True)).text
    assert "secret" not in text
    assert frames(text)[-2]["error"]["code"] == "internal_error"


async def test_events_without_anything_to_see_do_not_hold_back_the_ping(api, scripted, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, sse_keep_alive=1e-9)
    scripted.script = [ADMITTED, delta("a"), delta(""), delta("x"), finished(), completed()]
    text = (await post(api, stream=True)).text
    assert text.count(": ping\n") == 1, "for the token that shows nothing"


# The last message and the answer.


async def test_the_echo_is_the_last_messages_text_where_the_roles_are_equal(api, scripted):
    async def content(**fields):
        scripted.script = list(HELLO)
        return (await post(api, echo=True, **fields)).json()["choices"][0]["message"]["content"]

    parts = [{"type": "text", "text": "Once"}, "upon "]
    opened = {"messages": [{"role": "assistant", "content": parts}], "add_generation_prompt": False}
    assert await content(**opened) == "Once\nupon Hello"
    assert await content(messages=[{"role": "user", "content": "hi"}]) == "Hello"


# Errors before the first byte.


REJECTIONS = [
    (RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages"), 400, "context_length_exceeded", "messages"),
    (EngineUnavailable(ErrorCode.OVERLOADED, "full"), 503, "overloaded", None),
    (EngineUnavailable(ErrorCode.MODEL_LOADING, "loading"), 503, "model_loading", None),
    (EngineUnavailable(ErrorCode.WORKER_LOST, "lost"), 503, "worker_lost", None),
    (EngineFailure(ErrorCode.ENGINE_ERROR, "broken"), 500, "engine_error", None),
    (EngineFailure(ErrorCode.INTERNAL_ERROR, "secret"), 500, "internal_error", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code", "param"), REJECTIONS, ids=[code for _, _, code, _ in REJECTIONS])
async def test_a_refusal_of_the_engine_is_a_plain_http_error_also_for_streams(api, scripted, stream, error, status, code, param):
    scripted.script = [error]
    response = await post(api, stream=stream)
    body = response.json()
    assert (response.status_code, body["error"]["code"], body["error"]["param"]) == (status, code, param)
    assert body["message"] == body["error"]["message"]
    assert "secret" not in response.text
    assert scripted.readers[0].num_left == 1
    if status == 503:
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.headers["x-should-retry"] == "true"
    elif status == 500:
        assert response.headers["x-should-retry"] == "false"


async def test_a_refusal_of_the_engine_names_the_field_that_was_sent(api, scripted):
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, "max_tokens is wrong", "max_tokens")]
    assert (await post(api, max_completion_tokens=9)).json()["error"]["param"] == "max_completion_tokens"


async def test_a_limit_is_429_with_its_headers_and_one_record(api, scripted):
    headers = {"x-ratelimit-limit-requests": "5"}
    scripted.refusal = LimitExceeded(LimitKind.REQUESTS, "slow down", retry_after_s=400, headers=headers)
    response = await post(api)
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert response.headers["retry-after"] == "60"
    assert response.headers["x-should-retry"] == "true"
    assert response.headers["x-ratelimit-limit-requests"] == "5"
    assert [record["status"] for record in scripted.rejected] == [429]


@pytest.mark.parametrize("stream", [False, True])
async def test_rate_limit_headers_of_the_run_reach_the_client(api, scripted, stream):
    scripted.headers = {"x-ratelimit-remaining-tokens": "7"}
    assert (await post(api, stream=stream)).headers["x-ratelimit-remaining-tokens"] == "7"
    scripted.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages")]
    assert (await post(api, stream=stream)).headers["x-ratelimit-remaining-tokens"] == "7"


@pytest.mark.parametrize(
    ("ending", "status", "code"),
    [
        (completed(outcome=Outcome.TIMED_OUT), 408, "inference_timeout"),
        (completed(outcome=Outcome.STOPPED), 500, "engine_error"),
        (Failed(ErrorCode.WORKER_LOST, "The worker was lost."), 503, "worker_lost"),
        (Failed(ErrorCode.LOG_LOST, "gone"), 503, "worker_lost"),
    ],
    ids=str,
)
async def test_a_run_that_does_not_finish_is_no_answer(api, scripted, ending, status, code):
    scripted.script = [ADMITTED, delta("x"), ending]
    response = await post(api)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


BODIES = [
    ("not json", b"{", {}, 400, "invalid_json", None),
    ("list", b"[]", {}, 400, "invalid_json", None),
    ("NaN", b'{"messages": [], "temperature": NaN}', {}, 400, "invalid_json", None),
    ("deep", b'{"messages":' + b"[" * 100_000, {}, 400, "invalid_json", None),
    ("form", b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "invalid_content_type", None),
    ("multipart", b"--x", {"Content-Type": "multipart/form-data; boundary=" + "x" * 5000}, 400, "invalid_content_type", None),
    ("no type", b"{}", {"Content-Type": ""}, 400, "invalid_content_type", None),
    ("gzip", b"{}", {"Content-Encoding": "gzip"}, 400, "invalid_content_type", None),
    ("no messages", b"{}", {}, 400, "missing_required_parameter", "messages"),
    ("unknown model", json.dumps(chat(model="gpt-9")).encode(), {}, 404, "model_not_found", "model"),
    ("model before messages", b'{"messages": [5], "model": "gpt-9"}', {}, 404, "model_not_found", "model"),
    ("bad message", b'{"messages": [5]}', {}, 400, "invalid_type", "messages.0"),
    ("low priority number", json.dumps(chat(priority=-1)).encode(), {}, 400, "invalid_value", "priority"),
    ("no key", json.dumps(chat()).encode(), {"Authorization": ""}, 401, "invalid_api_key", None),
    ("wrong key", json.dumps(chat()).encode(), {"Authorization": "Bearer x' OR pg_sleep(8)--"}, 401, "invalid_api_key", None),
    ("key elsewhere", json.dumps(chat()).encode(), {"Authorization": "Bearer elsewhere"}, 403, "permission_denied", None),
    ("key before body", b"{", {"Authorization": "Bearer x"}, 401, "invalid_api_key", None),
]


NO_TOKEN = Failed(ErrorCode.INVALID_VALUE, "allowed_token_ids leaves no token", param="allowed_token_ids")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_leaves_no_first_token_is_a_plain_400_also_for_streams(api, scripted, stream):
    scripted.script = [ADMITTED, NO_TOKEN]
    response = await post(api, stream=stream, allowed_token_ids=[7])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "allowed_token_ids")
    assert scripted.readers[0].num_left == 1


async def test_a_request_that_runs_out_of_tokens_later_ends_in_an_error_frame_that_names_the_field(api, scripted):
    scripted.script = [ADMITTED, delta("x"), NO_TOKEN]
    *_, error, done = frames((await post(api, stream=True, allowed_token_ids=[7])).text)
    assert (error["error"]["code"], error["error"]["param"], done) == ("invalid_value", "allowed_token_ids", "[DONE]")


async def test_a_stream_that_waits_for_its_first_token_loses_nothing(api, scripted):
    for script in (HELLO, [ADMITTED, None, *HELLO[1:]]):
        scripted.script = list(script)
        *chunks, _ = frames((await post(api, stream=True, allowed_token_ids=[7])).text)
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello"


@pytest.mark.parametrize(("body", "headers", "status", "code", "param"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
async def test_a_bad_request_is_answered_in_the_one_error_shape(api, scripted, body, headers, status, code, param):
    response = await api.post(ROUTE, content=body, headers={"Content-Type": "application/json", **headers})
    parsed = response.json()
    assert response.status_code == status
    assert set(parsed) == {"error", "message"}
    assert set(parsed["error"]) == {"message", "type", "param", "code"}
    assert (parsed["error"]["code"], parsed["error"]["param"]) == (code, param)
    assert len(response.content) <= 16_384
    assert scripted.requests == []
    assert [(record["status"], record["code"]) for record in scripted.rejected] == [(status, code)]
    if status == 401:
        assert response.headers["www-authenticate"] == 'Bearer realm="lightcone"'


async def test_content_types_that_are_json_pass(api):
    for content_type in ("application/json", "application/json; charset=utf-8", "application/vnd.api+json", "APPLICATION/JSON"):
        response = await api.post(ROUTE, content=json.dumps(chat()), headers={"Content-Type": content_type, "Accept": "text/html"})
        assert response.status_code == 200, content_type


async def test_a_body_above_the_inline_size_is_checked_all_the_same(api, scripted):
    response = await post(api, metadata={"k": "v"}, ignored="x" * 3_000_000)
    assert response.status_code == 200
    assert (await post(api, temperature=9, ignored="x" * 100_000)).json()["error"]["param"] == "temperature"


async def test_a_body_above_the_limit_is_413_under_any_server(api, scripted):
    response = await api.post(
        ROUTE, content=b" " * (settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes + 10), headers={"Content-Type": "application/json"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_a_defect_is_a_500_without_details_that_is_not_repeated_and_has_one_record(api, scripted):
    scripted.refusal = RuntimeError("secret at 0x1234")
    response = await post(api)
    assert response.status_code == 500
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in response.text
    (record,) = scripted.rejected
    assert (record["status"], record["code"], record["caller"].public_id) == (500, "internal_error", "testing0001")


async def test_a_defect_before_the_key_is_known_has_a_record_too(api, scripted, monkeypatch):
    async def fail(**_):
        raise RuntimeError("the database is away")

    monkeypatch.setattr("chat.auth.key_authenticate_async", fail)
    response = await post(api)
    assert response.status_code == 500
    (record,) = scripted.rejected
    assert (record["status"], record["caller"]) == (500, None)


# Request ids.


async def test_the_header_wins_over_the_body_and_comes_back(api):
    response = await api.post(ROUTE, json=chat(request_id="from-body"), headers={"X-Request-Id": "from-header"})
    assert response.headers["x-request-id"] == "from-header"
    assert response.json()["id"] == "chatcmpl-from-header"
    assert (await post(api, request_id="from-body")).headers["x-request-id"] == "from-body"


@pytest.mark.parametrize("dirty", ["a b", "x" * 129, "ä".encode().decode("latin-1"), "a/b"])
async def test_a_malformed_header_id_is_replaced(api, dirty):
    response = await api.post(ROUTE, json=chat(), headers={"X-Request-Id": dirty.encode("latin-1")})
    assert response.headers["x-request-id"] != dirty
    assert response.json()["id"] == "chatcmpl-" + response.headers["x-request-id"]


# Clients that leave.


class Connection:
    """One ASGI request whose client can leave."""

    def __init__(self, body: dict) -> None:
        self.messages: asyncio.Queue = asyncio.Queue()
        self.messages.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        self.sent: asyncio.Queue = asyncio.Queue()
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": ROUTE,
            "raw_path": ROUTE.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", f"Bearer {KEY}".encode())],
            "client": ("127.0.0.1", 5),
        }

    def start(self) -> asyncio.Task:
        from lightcone_site.asgi import http

        return asyncio.create_task(http(self.scope, self.messages.get, self.sent.put))

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


class SilentReader:
    """Begins, says one thing if it is to stream, then waits for ever."""

    headers: dict[str, str] = {}

    def __init__(self, *, admits: bool) -> None:
        self.admits = admits
        self.waits = asyncio.Event()
        self.has_left = asyncio.Event()
        self.num_said = 0

    async def first(self, *, timeout_s: float | None = None):
        if not self.admits:
            await self._wait()
        return ADMITTED

    async def next(self, timeout_s: float):
        if self.num_said == 0:
            from engine.api import Event

            self.num_said = 1
            return Event(1, 1, delta("x"))
        return await self._wait()

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._wait()

    async def _wait(self):
        self.waits.set()
        await asyncio.Event().wait()

    def leave(self) -> None:
        self.has_left.set()


@pytest.mark.parametrize(("stream", "admits"), [(True, True), (True, False), (False, True), (False, False)])
async def test_a_client_that_goes_away_leaves_its_run_at_once(scripted, monkeypatch, stream, admits):
    reader = SilentReader(admits=admits)

    async def start(**_):
        return reader

    monkeypatch.setattr("chat.dialects.view.completion_start", start)
    connection = Connection(chat(stream=stream))
    task = connection.start()
    async with asyncio.timeout(5):
        await reader.waits.wait()
        connection.leave()
        await reader.has_left.wait()
        await task
