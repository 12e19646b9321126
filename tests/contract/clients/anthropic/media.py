"""Anthropic's Python client: images and documents for a model that sees."""

import base64
from pathlib import Path

import anthropic
from reporting import KEY, MODEL, SCRATCH, URL, feature, raised, run, same

CLIENT = anthropic.Anthropic(api_key=KEY, base_url=URL, max_retries=0, timeout=60)
IMAGE, OTHER, PAGE, SCAN = (
    (Path(SCRATCH) / name).read_bytes() for name in ("image.png", "other.png", "page.pdf", "scan.pdf")
)


def ask(block_type, source, **fields):
    block = {"type": block_type, "source": source, **fields}
    turn = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, block]}
    return CLIENT.messages.create(model=MODEL, messages=[turn], max_tokens=6, extra_body={"temperature": 0})


def said(message):
    usage = message.usage
    return message.content[0].text, usage.input_tokens + (usage.cache_read_input_tokens or 0)


def sent(data, kind="image/png"):
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


@feature("images: base64 and data URL")
def _():
    one, other = said(ask("image", sent(IMAGE))), said(ask("image", sent(OTHER)))
    assert one[0] != other[0]
    same(one[1], other[1])
    url = f"data:image/png;base64,{base64.b64encode(IMAGE).decode()}"
    same(said(ask("image", {"type": "url", "url": url})), one)


@feature("images: an uploaded one by its id")
def _():
    made = CLIENT.beta.files.upload(file=("x.png", IMAGE), extra_body={"purpose": "vision"})
    same(said(ask("image", {"type": "file", "file_id": made.id})), said(ask("image", sent(IMAGE))))


@feature("images: in the result of a tool")
def _():
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "image", "source": sent(IMAGE)}]}
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    tool = {"name": "look", "input_schema": {"type": "object"}}
    assert CLIENT.messages.create(model=MODEL, messages=turns, max_tokens=6, tools=[tool]).content is not None


@feature("files: a document with text, and a scan that is seen")
def _():
    read, seen = (said(ask("document", sent(data, "application/pdf"), title="x.pdf")) for data in (PAGE, SCAN))
    plain = {"type": "text", "media_type": "text/plain", "data": "[Page 1]\nBring milk."}
    same(said(ask("document", plain, title="x.pdf")), read)
    assert seen[1] > said(ask("document", {**plain, "data": "[Page 1]"}, title="x.pdf"))[1]


@feature("files: an uploaded scan by its id")
def _():
    made = CLIENT.beta.files.upload(file=("x.pdf", SCAN), extra_body={"purpose": "user_data"})
    source = {"type": "file", "file_id": made.id}
    same(said(ask("document", source)), said(ask("document", sent(SCAN, "application/pdf"), title="x.pdf")))


@feature("files: an address is the server's to fetch or refuse")
def _():
    for kind in ("image", "document"):
        source = {"type": "url", "url": "https://files.example/x"}
        error = raised(anthropic.BadRequestError, ask, block_type=kind, source=source)
        assert "fetches no remote media" in error.body["error"]["message"]


run()
