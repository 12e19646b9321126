"""Files in messages of a served Lightcone: the OpenAI client uploads and attaches them, the model reads their text."""

from __future__ import annotations

import base64

import httpx
import openai
import pytest

from tests.engine.inputs.documents.document_writing import docx_file, pptx_file, xlsx_file
from tests.engine.inputs.pdf_writing import encrypted_pdf, pdf

pytestmark = pytest.mark.live

TEXTS = {
    "notes.md": (b"# Notes\nBring milk.", "# Notes\nBring milk."),
    "table.csv": (b"a,b\r\n1,2", "a,b\r\n1,2"),
    "data.json": (b'{"a": [1]}', '{"a": [1]}'),
    "page.html": (b"<!doctype html><h1>Notes</h1><script>x</script><p>Bring milk.", "# Notes\nBring milk."),
    "two.pdf": (pdf("Bring milk.", "And bread."), "[Page 1]\nBring milk.\n\n[Page 2]\nAnd bread."),
    "notes.docx": (docx_file("Bring milk.", "And bread."), "Bring milk.\nAnd bread."),
    "table.xlsx": (xlsx_file(["milk", 2], title="Shop"), "[Sheet Shop]\nmilk,2"),
    "deck.pptx": (pptx_file("Bring milk."), "[Slide 1]\nBring milk."),
}
ASK = {"type": "text", "text": "What shall I bring?"}


@pytest.fixture(scope="module")
def client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as made:
        yield made


@pytest.fixture
def kept(client):
    """Upload files, and delete them at the end."""
    made = []

    def upload(name: str, content: bytes, purpose="user_data"):
        made.append(client.files.create(file=(name, content), purpose=purpose))
        return made[-1]

    yield upload
    for file in made:
        client.files.delete(file.id)


def asked(*parts):
    return [{"role": "user", "content": [*parts, ASK]}]


def chat(client, lightcone, *parts):
    return client.chat.completions.create(model=lightcone.model, messages=asked(*parts), temperature=0, max_tokens=4)


def inline(name, content):
    return {"type": "file", "file": {"filename": name, "file_data": base64.b64encode(content).decode()}}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_enters_the_prompt_the_same_inline_and_by_id(client, lightcone, kept, name):
    content, text = TEXTS[name]
    file = kept(name, content)
    first = chat(client, lightcone, inline(name, content))
    second = chat(client, lightcone, {"type": "file", "file": {"file_id": file.id}})
    as_text = chat(client, lightcone, {"type": "text", "text": f"File: {name}\n{text}"})
    assert first.usage.prompt_tokens == second.usage.prompt_tokens == as_text.usage.prompt_tokens
    assert second.choices[0].message.content == as_text.choices[0].message.content


def test_a_conversation_about_a_file_goes_on_from_the_prefix_cache(client, lightcone, kept):
    file = kept("long.docx", docx_file(*[f"Line {number} of a longer text." for number in range(60)]))
    part = {"type": "file", "file": {"file_id": file.id}}
    first = chat(client, lightcone, part)
    second = chat(client, lightcone, part)
    assert first.usage.prompt_tokens > 500
    assert second.usage.prompt_tokens_details.cached_tokens > 0.9 * first.usage.prompt_tokens


def test_responses_read_files_inline_and_by_id(client, lightcone, kept):
    content, text = TEXTS["two.pdf"]
    file = kept("two.pdf", content)
    data = f"data:application/pdf;base64,{base64.b64encode(content).decode()}"
    usages = []
    for part in (
        {"type": "input_file", "filename": "two.pdf", "file_data": data},
        {"type": "input_file", "file_id": file.id},
        {"type": "input_text", "text": f"File: two.pdf\n{text}"},
    ):
        items = [{"role": "user", "content": [part, {"type": "input_text", "text": ASK["text"]}]}]
        usages.append(client.responses.create(model=lightcone.model, input=items, max_output_tokens=16).usage)
    assert len({usage.input_tokens for usage in usages}) == 1


def test_documents_of_messages_are_read_inline_and_by_id(lightcone, kept):
    content, text = TEXTS["two.pdf"]
    file = kept("two.pdf", content, "assistants")
    sources = (
        {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(content).decode()},
        {"type": "file", "file_id": file.id},
        {"type": "text", "media_type": "text/plain", "data": text},
        {"type": "content", "content": [{"type": "text", "text": text}]},
    )
    counts = []
    for source in sources:
        blocks = [{"type": "document", "title": "two.pdf", "source": source}, ASK]
        body = {"model": lightcone.model, "messages": [{"role": "user", "content": blocks}]}
        headers = {"x-api-key": lightcone.api_key}
        answer = httpx.post(f"{lightcone.base_url}/v1/messages/count_tokens", json=body, headers=headers, timeout=120)
        counts.append(answer.json())
    assert counts == [{"input_tokens": counts[0]["input_tokens"]}] * 4


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.pdf", encrypted_pdf("word"), "encrypted"),
        ("x.pdf", pdf(""), "no text"),
        ("x.docx", docx_file("x")[:2000], "damaged"),
        ("x.docx", b"plain", "says DOCX"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "PNG image"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_place_and_the_server_goes_on(
    client, lightcone, kept, name, content, words
):
    for part in (inline(name, content), {"type": "file", "file": {"file_id": kept(name, content).id}}):
        with pytest.raises(openai.BadRequestError, match=words) as refusal:
            chat(client, lightcone, part)
        assert refusal.value.body["param"] == "messages.0.content.0.file"
        assert refusal.value.body["message"].startswith("messages.0.content.0.file cannot be read: ")
    assert chat(client, lightcone, {"type": "text", "text": "Hi"}).choices


def test_each_dialect_names_the_file_as_it_was_sent(client, lightcone):
    data = base64.b64encode(encrypted_pdf("word")).decode()
    items = [{"role": "user", "content": [{"type": "input_file", "filename": "x.pdf", "file_data": data}]}]
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model=lightcone.model, input=items)
    assert refusal.value.body["message"].startswith("input.0.content.0 cannot be read: the PDF file is encrypted")
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    turn = {"role": "user", "content": [{"type": "document", "source": source}]}
    body = {"model": lightcone.model, "max_tokens": 4, "messages": [turn]}
    headers = {"x-api-key": lightcone.api_key}
    answer = httpx.post(f"{lightcone.base_url}/v1/messages", json=body, headers=headers, timeout=120)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400
    assert message.startswith("messages.0.content.0.source cannot be read: the PDF file is encrypted")


def test_a_deleted_file_and_one_of_another_purpose_are_refused(client, lightcone, kept):
    file = client.files.create(file=("x.txt", b"x"), purpose="user_data")
    client.files.delete(file.id)
    lines = kept("x.jsonl", b"{}", "batch")
    for file_id in (file.id, lines.id):
        with pytest.raises(openai.BadRequestError) as refusal:
            chat(client, lightcone, {"type": "file", "file": {"file_id": file_id}})
        assert refusal.value.body["param"] == "messages.0.content.0.file.file_id"
