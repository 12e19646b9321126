"""Two pre-releases of Scale's client: the older names every parameter, the newer takes them in `extra_body`."""

import inspect
import json
from typing import Literal

import pydantic
import scale_gp
from reporting import FORCED, HELLO, KEY, MODEL, URL, feature, raised, run, same

CLIENT = scale_gp.SGPClient(api_key=KEY, base_url=URL, account_id="acc", max_retries=0, timeout=60)
NAMED = inspect.signature(CLIENT.beta.chat.completions.create).parameters
CHAT = {"model": f"lightcone/{MODEL}", "messages": HELLO, "max_tokens": 8, "temperature": 0}


def create(**fields):
    """Create with fields unknown to this version in `extra_body`."""
    extra = {name: fields.pop(name) for name in list(fields) if name not in NAMED}
    return CLIENT.beta.chat.completions.create(**{**CHAT, **fields}, extra_body=extra or None)


def plain(value):
    """Convert objects to dictionaries, which some versions return already."""
    return value if isinstance(value, dict) else value.model_dump()


def text(answer):
    return plain(answer.choices[0])["message"]["content"]


class Order(pydantic.BaseModel):
    drink: Literal["tea", "coffee"]


@feature("chat: text, usage and finish reason")
def _():
    answer = create()
    assert text(answer)
    assert plain(answer.choices[0])["finish_reason"] in ("stop", "length")
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@feature("chat: model by vendor, name and deployment")
def _():
    for model in (MODEL, f"lightcone/{MODEL}", f"lightcone/{MODEL}/main"):
        same(create(model=model).model, MODEL)


@feature("chat: memory strategy")
def _():
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One. " * 50},
        {"role": "assistant", "content": "Two. " * 50},
        *HELLO,
    ]
    whole, cut = create(messages=history), create(messages=history, memory_strategy={"name": "last_k", "k": 1})
    assert cut.usage.prompt_tokens < whole.usage.prompt_tokens - 50
    same(cut.usage.prompt_tokens, create(messages=[history[0], *HELLO]).usage.prompt_tokens)


@feature("chat: best of several")
def _():
    answer = create(best_of=3, n=2, temperature=1, seed=5)
    same([plain(choice)["index"] for choice in answer.choices], [0, 1])


@feature("chat: seed, top_k, log-probabilities, stop, user")
def _():
    asked = {
        "seed": 3,
        "temperature": 1,
        "top_k": 5,
        "logprobs": True,
        "top_logprobs": 2,
        "stop": ["\n\n"],
        "user": "ann",
    }
    first, second = create(**asked), create(**asked)
    same(text(first), text(second))
    same(len(plain(first.choices[0])["logprobs"]["content"][0]["top_logprobs"]), 2)


@feature("chat: a prediction changes nothing")
def _():
    expected = text(create())
    same(text(create(prediction={"type": "content", "content": expected})), expected)


@feature("chat: a deadline and further parameters of the engine")
def _():
    extra = {"min_tokens": 8, "ignore_eos": True}
    answer = create(inference_timeout=30, inference_extra_params=extra, inference_extra_headers={"x-any": "1"})
    same(answer.usage.completion_tokens, 8)


@feature("chat: a deadline that passes is a 408")
def _():
    asked = {"inference_timeout": 0.2, "max_tokens": 1500, "inference_extra_params": {"ignore_eos": True}}
    error = raised(scale_gp.APIStatusError, create, **asked)
    same((error.status_code, error.response.headers["x-should-retry"]), (408, "false"))


@feature("stream: chunks up to the end")
def _():
    chunks = [plain(chunk) for chunk in create(stream=True)]
    assert "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert chunks[-1]["choices"][0]["finish_reason"]


@feature("async: answer and stream")
async def _():
    async with scale_gp.AsyncSGPClient(
        api_key=KEY, base_url=URL, account_id="acc", max_retries=0, timeout=60
    ) as client:
        assert text(await client.beta.chat.completions.create(**CHAT))
        chunks = [chunk async for chunk in await client.beta.chat.completions.create(**CHAT, stream=True)]
    assert chunks


@feature("tools: call, answer, go on", note=FORCED)
def _():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "now", "parameters": schema}}]
    called = plain(create(tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=24).choices[0])
    (call,) = called["message"]["tool_calls"]
    same(
        (called["finish_reason"], call["function"]["name"], call["function"]["arguments"]), ("tool_calls", "now", "{}")
    )
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{key: call[key] for key in ("id", "type", "function")}],
    }
    history = [*HELLO, turn, {"role": "tool", "tool_call_id": call["id"], "content": "noon"}]
    assert text(create(messages=history, tools=tools, tool_choice="none"))


@feature("structured: choice, regex, JSON, grammar")
def _():
    assert text(create(guided_choice=["tea", "coffee"])) in ("tea", "coffee")
    assert text(create(guided_regex="[0-9]{3}")).isdigit()
    made = text(create(guided_json=Order.model_json_schema(), guided_decoding_backend="outlines", max_tokens=24))
    Order.model_validate_json(made)
    same(text(create(guided_grammar='root ::= "yes"')), "yes")


@feature("structured: response format of a pydantic class")
def _():
    made = create(response_format=Order, max_tokens=24) if "response_format" in NAMED else None
    Order.model_validate_json(text(made))


@feature("structured: response format as JSON")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": Order.model_json_schema()}}
    answer = CLIENT.beta.chat.completions.create(**{**CHAT, "max_tokens": 24}, extra_body={"response_format": form})
    assert json.loads(text(answer))["drink"] in ("tea", "coffee")


@feature("completions: prompt")
def _():
    answer = CLIENT.beta.completions.create(
        model=f"lightcone/{MODEL}", prompt="The sky is", max_tokens=8, temperature=0
    )
    assert plain(answer.choices[0])["text"]


@feature("completions: stream")
def _():
    asked = {"model": f"lightcone/{MODEL}", "prompt": "The sky is", "max_tokens": 8, "temperature": 0}
    chunks = [plain(chunk) for chunk in CLIENT.beta.completions.create(**asked, stream=True)]
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


@feature("models: list and one")
def _():
    listed = list(CLIENT.models.list())
    assert f"lightcone/{MODEL}" in [entry.id for entry in listed], [entry.id for entry in listed]
    same(CLIENT.models.retrieve(listed[0].id).id, listed[0].id)


@feature("errors: class and body")
def _():
    for fields, kind, param in (
        ({"temperature": 9}, scale_gp.BadRequestError, "temperature"),
        ({"model": "nobody/nothing"}, scale_gp.NotFoundError, "model"),
        ({"best_of": 2, "stream": True}, scale_gp.BadRequestError, "best_of"),
    ):
        body = raised(kind, create, **fields).body
        same((body["error"]["param"], body["detail"]), (param, body["error"]["message"]))
    stranger = scale_gp.SGPClient(api_key="bad", base_url=URL, account_id="acc", max_retries=0)
    same(raised(scale_gp.AuthenticationError, stranger.models.list).status_code, 401)


run()
