"""Interrupted streams that are resumed, and stored chat completions, over a served Lightcone."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

import httpx
import openai
import pytest

pytestmark = pytest.mark.live

BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Say hello in one short sentence."}],
    "temperature": 0,
    "max_tokens": 12,
    "stream": True,
}


@pytest.fixture(scope="module")
def http(lightcone):
    with httpx.Client(
        base_url=lightcone.base_url, headers={"Authorization": f"Bearer {lightcone.api_key}"}, timeout=60
    ) as made:
        yield made


def start(http: httpx.Client, name: str, **fields: Any):
    headers = {"X-Lightcone-Resumable": "true", "X-Request-Id": name}
    return http.stream("POST", "/v1/chat/completions", json={**BODY, **fields}, headers=headers)


def cut(http: httpx.Client, name: str, num_frames: int, **fields: Any) -> list[str]:
    """Return the first frames of a stream and break its connection."""
    frames = []
    with start(http, name, **fields) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                frames.append(line)
            if len(frames) == num_frames:
                return frames
    raise AssertionError("the stream ended first")


def data_lines(text: str) -> list[str]:
    return re.findall(r"^data: .*$", text, re.MULTILINE)


def test_a_stream_that_breaks_is_picked_up_without_a_gap_or_a_repeat(http):
    name = secrets.token_hex(8)
    seen = cut(http, name, 3, max_tokens=16, ignore_eos=True, stream_options={"include_usage": True})
    last = json.loads(seen[-1][6:])["lightcone"]["seq"]
    rest = http.get(f"/v1/chat/completions/chatcmpl-{name}/events", params={"starting_after": last})
    assert rest.headers["content-type"] == "text/event-stream; charset=utf-8"
    whole = http.get(f"/chat/completions/chatcmpl-{name}/events")
    assert seen + data_lines(rest.text) == data_lines(whole.text)
    *chunks, done = [line[6:] for line in data_lines(whole.text)]
    assert done == "[DONE]"
    assert [json.loads(chunk)["lightcone"]["seq"] for chunk in chunks] == list(range(len(chunks)))
    assert json.loads(chunks[-1])["usage"]["completion_tokens"] == 16
    answer = http.get(f"/v1/chat/completions/chatcmpl-{name}").json()
    assert answer["usage"]["completion_tokens"] == 16
    texts = [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert answer["choices"][0]["message"]["content"] == "".join(texts)


def test_the_undisturbed_stream_has_the_same_bytes(http):
    name = secrets.token_hex(8)
    with start(http, name) as response:
        whole = response.read().decode()
    again = http.get(f"/v1/chat/completions/chatcmpl-{name}/events").text
    assert re.sub(r"^id: \d+\n", "", again, flags=re.MULTILINE) == whole


def test_an_id_in_use_is_refused_and_others_are_not_found(http):
    name = secrets.token_hex(8)
    with start(http, name) as response:
        response.read()
    with start(http, name) as refused:
        assert refused.status_code == 409
        assert refused.headers["x-should-retry"] == "false"
        assert json.loads(refused.read())["error"]["code"] == "request_id_in_use"
    missing = http.get("/v1/chat/completions/chatcmpl-nobody/events")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_resumable")


def test_stored_completions_go_through_the_published_client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as client:
        label = secrets.token_hex(4)
        made = client.chat.completions.create(
            model=lightcone.model,
            messages=BODY["messages"],
            temperature=0,
            max_tokens=4,
            store=True,
            metadata={"run": label},
        )
        stored = client.chat.completions
        assert stored.retrieve(made.id).choices[0].message.content == made.choices[0].message.content
        assert [entry.id for entry in stored.list(metadata={"run": label})] == [made.id]
        assert stored.messages.list(made.id).data[0].content == BODY["messages"][0]["content"]
        assert stored.update(made.id, metadata={"run": "other"}).metadata == {"run": "other"}
        assert stored.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError):
            stored.retrieve(made.id)
