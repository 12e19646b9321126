"""The API description and the page on messages match the served fields."""

import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator

from chat.api.anthropic.answer import MessageAnswer
from chat.api.anthropic.errors import TYPES
from chat.api.anthropic.schema import COUNT_TOKENS, MESSAGES
from chat.api.anthropic.translation import NO_REASONS
from engine.api import ChoiceFinished, Delta, FinishReason, ToolCallDelta
from tests.chat.api.anthropic.shapes import TOOL, events, head, message, post
from tests.chat.api.conftest import completed

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "api" / "messages.md").read_text()


def validator(components, name):
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


def test_an_answer_is_as_described(components):
    writer = MessageAnswer(head(echo_fields=NO_REASONS))
    payloads = [
        Delta(0, (1,), "text", reasoning="so", tool_calls=(ToolCallDelta(0, "c", "f", "{}"),)),
        ChoiceFinished(0, FinishReason.STOP),
        completed(),
    ]
    for event in events(*payloads):
        writer.feed(event)
    body = json.loads(writer.body())
    validator(components, "MessageBody").validate(body)
    assert set(body) == set(components["schemas"]["MessageBody"]["properties"])


async def test_an_error_is_as_described(api, components):
    validator(components, "MessageError").validate((await post(api, temperature=9)).json())


def test_a_request_is_as_described(components):
    body = message(
        tools=[TOOL], system="s", thinking={"type": "adaptive"}, stop_sequences=["x"], tool_choice={"type": "auto"}
    )
    validator(components, "MessagesRequest").validate(body)
    del body["max_tokens"]
    assert not validator(components, "MessagesRequest").is_valid(body)
    validator(components, "CountTokensRequest").validate(body)


def test_the_page_names_every_field_and_every_type_of_error():
    for name in {*MESSAGES.fields, *COUNT_TOKENS.fields}:
        assert re.search(rf"`{name}[`:]", PAGE), name
    for word in TYPES.values():
        assert f"`{word}`" in PAGE, word
