"""The tzafon client, of both generations: the older one asks at the bare routes, the newer one under /v1."""

import asyncio
import json

import tzafon
from reporting import FORCED, HELLO, KEY, MODEL, URL, feature, raised, run, same

CLIENT = tzafon.Lightcone(api_key=KEY, base_url=URL, max_retries=0, timeout=60)
CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 8, "temperature": 0}


def text_of(frames):
    return "".join(json.loads(frame)["choices"][0]["delta"].get("content") or "" for frame in frames)


@feature("chat: a dictionary with text, usage and finish reason")
def _():
    answer = CLIENT.chat.create_completion(**CHAT)
    assert answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    same(answer["usage"]["total_tokens"], answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"])


@feature("chat: further fields of the server by extra_body")
def _():
    answer = CLIENT.chat.create_completion(**CHAT, extra_body={"min_tokens": 8, "ignore_eos": True})
    same(answer["usage"]["completion_tokens"], 8)


@feature("stream: one text with all frames")
def _():
    raw = CLIENT.chat.create_completion(**CHAT, stream=True)
    *frames, last = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
    same(last, "[DONE]")
    assert text_of(frames)


@feature("stream: line by line as it comes")
def _():
    with CLIENT.chat.with_streaming_response.create_completion(**CHAT, stream=True) as response:
        *frames, last = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    same(last, "[DONE]")
    assert text_of(frames)


@feature("async: answers side by side")
async def _():
    async with tzafon.AsyncLightcone(api_key=KEY, base_url=URL, max_retries=0, timeout=60) as client:
        answers = await asyncio.gather(*(client.chat.create_completion(**CHAT) for _ in range(3)))
    assert all(answer["choices"][0]["message"]["content"] for answer in answers)


@feature("tools: call, answer, go on", note=FORCED)
def _():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    asked = {**CHAT, "tools": [{"type": "function", "function": {"name": "now", "parameters": schema}}]}
    named = {"type": "function", "function": {"name": "now"}}
    message = CLIENT.chat.create_completion(**asked, tool_choice=named)["choices"][0]["message"]
    (call,) = message["tool_calls"]
    same(call["function"], {"name": "now", "arguments": "{}"})
    history = [*HELLO, message, {"role": "tool", "tool_call_id": call["id"], "content": "noon"}]
    answer = CLIENT.chat.create_completion(**{**asked, "messages": history}, tool_choice="none")
    assert answer["choices"][0]["message"]["content"]


@feature("structured: a choice")
def _():
    answer = CLIENT.chat.create_completion(**CHAT, extra_body={"structured_outputs": {"choice": ["tea", "coffee"]}})
    assert answer["choices"][0]["message"]["content"] in ("tea", "coffee")


@feature("structured: JSON Schema")
def _():
    schema = {
        "type": "object",
        "properties": {"drink": {"enum": ["tea", "coffee"]}},
        "required": ["drink"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}
    answer = CLIENT.chat.create_completion(**{**CHAT, "max_tokens": 24}, response_format=form)
    assert json.loads(answer["choices"][0]["message"]["content"])["drink"] in ("tea", "coffee")


@feature("responses: create, retrieve, continue")
def _():
    asked = {
        "model": MODEL,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}],
        "max_output_tokens": 16,
    }
    first = CLIENT.responses.create(**asked)
    assert first.status in ("completed", "incomplete"), first.status
    assert first.usage.output_tokens > 0
    kept = CLIENT.responses.retrieve(first.id)  # which the newer version leaves as it came
    same((kept if isinstance(kept, dict) else kept.model_dump())["id"], first.id)
    assert CLIENT.responses.create(**asked, previous_response_id=first.id).usage.input_tokens > first.usage.input_tokens


@feature("models: list")
def _():
    assert MODEL in [entry["id"] for entry in CLIENT.models.list()["data"]]


@feature("errors: class and body")
def _():
    body = raised(tzafon.BadRequestError, CLIENT.chat.create_completion, **{**CHAT, "temperature": 9}).body
    same(body["error"]["param"], "temperature")
    same(body["message"], body["error"]["message"])
    stranger = tzafon.Lightcone(api_key="bad", base_url=URL, max_retries=0)
    same(raised(tzafon.AuthenticationError, stranger.models.list).status_code, 401)


run()
