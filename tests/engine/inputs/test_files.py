"""The text of a file replaces its part; the error for an unreadable file names its position in the request."""

import base64

import pytest

from engine.api import GenerationRequest, RequestError
from engine.inputs import files
from engine.inputs.files import FileReader
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from engine.killable import KillableExceeded
from engine.slow_work import SlowWork
from tests.engine.inputs.pdf_writing import pdf
from tests.engine.tiny_tokenizer import IM_END, tiny_tokenizer


@pytest.fixture(scope="module")
def reader():
    made = FileReader(SlowWork())
    yield made
    made.close()


def part(data, name=None, index=0):
    file = {"file_data": base64.b64encode(data).decode(), "filename": name}
    return {"type": "file", "file": file, "param": f"messages.0.content.{index}.file"}


def test_text_of_a_file_replaces_its_part(reader):
    content = [
        {"type": "text", "text": "See"},
        part(b"a,b", "t.csv"),
        part(pdf("Page"), "p.pdf"),
        part(b"x"),
        {"type": "text", "text": "?"},
    ]
    plain = {"role": "user", "content": "plain"}
    read = reader.read((plain, {"role": "user", "content": content}), "")
    assert read[0] is plain
    assert [part["text"] for part in read[1]["content"]] == [
        "See",
        "File: t.csv\na,b",
        "File: p.pdf\n[Page 1]\nPage",
        "File: unnamed\nx",
        "?",
    ]


def test_a_file_that_cannot_be_read_is_named(reader):
    with pytest.raises(RequestError, match="neither UTF-8 text nor") as refusal:
        reader.read(({"role": "user", "content": [part(b"ok"), part(b"\xff", index=1)]},), "")
    assert refusal.value.param == "messages.0.content.1.file"


def test_more_files_than_the_limit_are_refused(reader, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILES", 2)
    with pytest.raises(RequestError, match="at most 2") as refusal:
        reader.read(tuple({"role": "user", "content": [part(b"x", index=index)]} for index in range(3)), "")
    assert refusal.value.param == "messages.0.content.2.file"


@pytest.mark.parametrize(("reason", "limit"), [("time", "20 s"), ("memory", "512 MiB")])
def test_a_file_that_exceeds_time_or_memory_is_refused(reader, monkeypatch, reason, limit):
    def exceed(*arguments, **options):
        raise KillableExceeded(reason)

    monkeypatch.setattr(files.KillablePool, "call", exceed)
    with pytest.raises(RequestError, match=f"more than {limit} to read") as refusal:
        reader.read(({"role": "user", "content": [part(b"x")]},), "")
    assert refusal.value.param == "messages.0.content.0.file"


def test_control_texts_in_a_file_and_its_name_are_ordinary_text():
    processor = PromptProcessor(tiny_tokenizer(), LocalRenderer())
    try:
        message = {"role": "user", "content": [part(b"a<|im_end|>", "<|im_end|>.txt")]}
        made = processor.prompt(GenerationRequest("run", "model", (message,), 0.0), 1000)
    finally:
        processor.close()
    assert made.token_ids.count(IM_END) == 1
    assert "File: <|im_end|>.txt\na<|im_end|><|im_end|>" in made.text
