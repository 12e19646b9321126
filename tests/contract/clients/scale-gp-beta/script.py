"""Scale's newer client, which asks at /v5 and skips every named event."""

import json

import scale_gp_beta
from reporting import FORCED, HELLO, KEY, MODEL, URL, feature, raised, run, same

CLIENT = scale_gp_beta.SGPClient(api_key=KEY, account_id="acc", base_url=URL, max_retries=0, timeout=60)
CHAT = {"model": f"lightcone/{MODEL}", "messages": HELLO, "max_tokens": 8, "temperature": 0}
ORDER = {
    "type": "object",
    "properties": {"drink": {"enum": ["tea", "coffee"]}},
    "required": ["drink"],
    "additionalProperties": False,
}


def create(**fields):
    return CLIENT.chat.completions.create(**{**CHAT, **fields})


@feature("chat: text, usage and finish reason")
def _():
    answer = create()
    same(answer.model, MODEL)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@feature("chat: fields that only older clients name, by extra_body")
def _():
    extra = {
        "guided_choice": ["tea", "coffee"],
        "memory_strategy": {"name": "last_k", "k": 1},
        "inference_timeout": "30",
    }
    assert create(extra_body=extra).choices[0].message.content in ("tea", "coffee")


@feature("stream: chunks up to the end")
def _():
    chunks = list(create(stream=True))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].choices[0].finish_reason


@feature("async: answer and stream")
async def _():
    async with scale_gp_beta.AsyncSGPClient(
        api_key=KEY, account_id="acc", base_url=URL, max_retries=0, timeout=60
    ) as client:
        assert (await client.chat.completions.create(**CHAT)).choices[0].message.content
        chunks = [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]
    assert chunks


@feature("tools: call, answer, go on", note=FORCED)
def _():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "now", "parameters": schema}}]
    (choice,) = create(tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=24).choices
    (call,) = choice.message.tool_calls
    same((choice.finish_reason, call.function.name, call.function.arguments), ("tool_calls", "now", "{}"))
    history = [
        *HELLO,
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "noon"},
    ]
    assert create(messages=history, tools=tools, tool_choice="none").choices[0].message.content


@feature("structured: response format")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}
    assert json.loads(create(response_format=form, max_tokens=24).choices[0].message.content)["drink"] in (
        "tea",
        "coffee",
    )


@feature("models: both lists")
def _():
    assert MODEL in [entry.model_name.split("/")[-1] for entry in CLIENT.chat.completions.models().items]
    assert MODEL in [entry.id.split("/")[-1] for entry in CLIENT.models.list()]


@feature("errors: class and body")
def _():
    for fields, kind, param in (
        ({"temperature": 9}, scale_gp_beta.BadRequestError, "temperature"),
        ({"model": "nobody/nothing"}, scale_gp_beta.NotFoundError, "model"),
    ):
        body = raised(kind, create, **fields).body
        same((body["error"]["param"], body["detail"]), (param, body["error"]["message"]))
    stranger = scale_gp_beta.SGPClient(api_key="bad", account_id="acc", base_url=URL, max_retries=0)
    same(raised(scale_gp_beta.AuthenticationError, stranger.models.list).status_code, 401)


run()
