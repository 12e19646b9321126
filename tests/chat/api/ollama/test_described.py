"""The API description and the page on Ollama match the served fields and answers."""

import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator

from chat.api.ollama.fields import CHAT, COPY, CREATE, EMBED, GENERATE, PULL
from chat.api.ollama.lines import LineStream, WholeAnswer, chat_content, generated_content
from chat.api.ollama.options import Options
from chat.api.ollama.urls import urlpatterns
from engine.api import ChoiceFinished, Delta, FinishReason, TokenLogprob, ToolCallDelta, TopLogprob
from tests.chat.api.conftest import completed
from tests.chat.api.ollama.shapes import chat, events, head, lines

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "api" / "ollama.md").read_text()
TOKEN = TokenLogprob(5, -0.5, "a", b"a", (TopLogprob(5, -0.5, "a", b"a"),))
PAYLOADS = [
    Delta(0, (1,), "text", (TOKEN,), reasoning="so", tool_calls=(ToolCallDelta(0, "c", "f", "{}"),)),
    ChoiceFinished(0, FinishReason.STOP),
    completed(),
]


def closed(schema):
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


def validator(components, name):
    schemas = {one: closed(schema) for one, schema in components["schemas"].items()}
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})


def test_answers_and_lines_are_as_described(components):
    for name, content in (("OllamaChat", chat_content), ("OllamaText", generated_content)):
        whole, stream = WholeAnswer(head(), content), LineStream(head(), content)
        written = b""
        for event in events(*PAYLOADS):
            whole.feed(event)
            written += stream.feed(event)
        described = validator(components, name)
        for value in (json.loads(whole.body()), *lines(written.decode())):
            described.validate(value)


async def test_an_error_is_as_described(api, components):
    validator(components, "OllamaError").validate((await chat(api, think="hard")).json())


async def test_lists_of_models_are_as_described(installed, components):
    for path, name in (("tags", "OllamaTags"), ("ps", "OllamaLoaded"), ("version", "OllamaVersion")):
        validator(components, name).validate((await installed.api.get(f"/api/{path}")).json())
    validator(components, "OllamaModel").validate((await installed.post("show", model="base")).json())


def test_the_page_names_every_field_every_option_and_every_route():
    schemas = (CHAT, GENERATE, EMBED, PULL, COPY, CREATE)
    names = {name for schema in schemas for name in schema.fields}
    for name in names | set(Options.parts):
        assert re.search(rf"`{name}[`:]", PAGE), name
    for pattern in urlpatterns[:-1]:
        assert f"`/api/{pattern.name.removeprefix('ollama_')}`" in PAGE, pattern.name
