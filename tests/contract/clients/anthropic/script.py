"""Anthropic's Python client at /v1/messages."""

import base64
from typing import Literal

import anthropic
import pydantic
from reporting import FORCED, HELLO, KEY, MODEL, URL, feature, raised, run, same

CLIENT = anthropic.Anthropic(api_key=KEY, base_url=URL, max_retries=0, timeout=60)
CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 8, "extra_body": {"temperature": 0}}
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "The weather of a city.", "input_schema": PLACE}

PAGE = b"""%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [4 0 R] /Count 1 >> endobj
3 0 obj << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >> endobj
4 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> >> >>
endobj
5 0 obj << /Length 42 >> stream
BT /F1 12 Tf 72 720 Td (Bring milk.) Tj ET
endstream endobj
trailer << /Size 6 /Root 1 0 R >>
startxref
0
%%EOF
"""


class Order(pydantic.BaseModel):
    drink: Literal["tea", "coffee"]


@feature("chat: blocks, usage and stop reason")
def _():
    message = CLIENT.messages.create(**CHAT, system="Be brief.")
    same((message.type, message.role, message.model), ("message", "assistant", MODEL))
    assert message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0


@feature("chat: stop sequences and a begun answer")
def _():
    spoken = [*HELLO, {"role": "assistant", "content": "One, two,"}]
    message = CLIENT.messages.create(**{**CHAT, "messages": spoken, "max_tokens": 16}, stop_sequences=["five"])
    assert "five" not in "".join(block.text for block in message.content)
    if message.stop_reason == "stop_sequence":
        same(message.stop_sequence, "five")


@feature("chat: headers of the raw response")
def _():
    raw = CLIENT.messages.with_raw_response.create(**CHAT)
    assert raw.headers["request-id"]
    assert raw.parse().content[0].text


@feature("stream: raw events in order")
def _():
    kinds = [event.type for event in CLIENT.messages.create(**CHAT, stream=True)]
    same((kinds[0], kinds[-2], kinds[-1]), ("message_start", "message_delta", "message_stop"))
    assert "content_block_delta" in kinds


@feature("stream: helper with the final message")
def _():
    with CLIENT.messages.stream(**CHAT) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    same(text, final.content[0].text)
    assert final.usage.output_tokens > 0


@feature("async: answer and stream")
async def _():
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=URL, max_retries=0, timeout=60) as client:
        assert (await client.messages.create(**CHAT)).content[0].text
        async with client.messages.stream(**CHAT) as stream:
            assert "".join([text async for text in stream.text_stream])


@feature("tools: call, answer, go on", note=FORCED)
def _():
    asked = {**CHAT, "max_tokens": 40, "tools": [TOOL]}
    called = CLIENT.messages.create(**asked, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    (use,) = [block for block in called.content if block.type == "tool_use"]
    same((called.stop_reason, use.name, use.input["city"] in ("Rome", "Oslo")), ("tool_use", "weather", True))
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}
    history = [*HELLO, {"role": "assistant", "content": called.content}, result]
    answer = CLIENT.messages.create(**{**asked, "messages": history, "max_tokens": 8}, tool_choice={"type": "none"})
    assert answer.content[0].text


@feature("tools: a call grows in a stream", note=FORCED)
def _():
    named = {"type": "tool", "name": "weather"}
    with CLIENT.messages.stream(**{**CHAT, "max_tokens": 40}, tools=[TOOL], tool_choice=named) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        (use,) = stream.get_final_message().content
    assert "".join(pieces)
    assert use.input["city"] in ("Rome", "Oslo")


@feature("structured: parse() gives a pydantic object")
def _():
    message = CLIENT.messages.parse(**{**CHAT, "max_tokens": 40}, output_format=Order)
    assert isinstance(message.parsed_output, Order)


@feature("tokens: count")
def _():
    counted = CLIENT.messages.count_tokens(model=MODEL, messages=HELLO)
    usage = CLIENT.messages.create(**CHAT).usage
    same(
        counted.input_tokens,
        usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0),
    )


@feature("files: documents as PDF, text and uploaded file")
def _():
    made = CLIENT.beta.files.upload(file=("page.pdf", PAGE), extra_body={"purpose": "user_data"})
    sources = (
        {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(PAGE).decode()},
        {"type": "file", "file_id": made.id},
        {"type": "text", "media_type": "text/plain", "data": "[Page 1]\nBring milk."},
        {"type": "content", "content": [{"type": "text", "text": "[Page 1]\nBring milk."}]},
    )
    usages = []
    for source in sources:
        document = {"type": "document", "title": "page.pdf", "source": source}
        turn = {"role": "user", "content": [document, {"type": "text", "text": "What shall I bring?"}]}
        usages.append(CLIENT.messages.create(**{**CHAT, "messages": [turn]}).usage)
    same(len({usage.input_tokens + (usage.cache_read_input_tokens or 0) for usage in usages}), 1)


@feature("models: list and one")
def _():
    assert MODEL in [model.id for model in CLIENT.models.list()]
    same(CLIENT.models.retrieve(MODEL).id, MODEL)


@feature("errors: class and type")
def _():
    for fields, kind, word in (
        ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError, "invalid_request_error"),
        ({"model": "claude-9"}, anthropic.NotFoundError, "not_found_error"),
        ({"stream": True, "messages": []}, anthropic.BadRequestError, "invalid_request_error"),
    ):
        body = raised(kind, CLIENT.messages.create, **{**CHAT, **fields}).body
        same((body["type"], body["error"]["type"]), ("error", word))
    stranger = anthropic.Anthropic(api_key="bad", base_url=URL, max_retries=0)
    same(
        raised(anthropic.AuthenticationError, stranger.messages.create, **CHAT).body["error"]["type"],
        "authentication_error",
    )


run()
