"""Any JSON body becomes an engine request or one 400 that names a sent field."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chat.access.keys import Caller
from chat.api.anthropic.dialect import COUNT_TOKENS, MESSAGES
from chat.api.anthropic.schema import MessagesRequest
from chat.errors import ApiError
from engine.api import GenerationRequest
from engine.api.wire import request_from_plain, request_to_plain
from tests.chat.api.anthropic.shapes import TOOL, TURN, message
from tests.chat.api.request.building import generation_built
from tests.examples import examples

CALLER = Caller(1, "testing0001", 1, 1, "1")
FIELDS = list(MessagesRequest().fields)
KEYS = st.sampled_from(
    [
        *(
            "type",
            "role",
            "content",
            "text",
            "name",
            "id",
            "input",
            "input_schema",
            "tool_use_id",
            "is_error",
            "source",
            "data",
            "keep",
        ),
        *(
            "media_type",
            "title",
            "context",
            "citations",
            "enabled",
            "thinking",
            "display",
            "budget_tokens",
            "effort",
            "format",
            "schema",
        ),
        *(
            "user_id",
            "edits",
            "bill_to",
            "strict",
            "input_examples",
            "allowed_callers",
            "defer_loading",
            "disable_parallel_tool_use",
        ),
    ]
)
WORDS = st.sampled_from(
    [
        *(
            "",
            " ",
            "\0",
            "é",
            "user",
            "assistant",
            "system",
            "text",
            "enabled",
            "adaptive",
            "disabled",
            "auto",
            "any",
            "tool",
            "none",
            "f",
        ),
        *("custom", "json_schema", "object", "low", "content", "base64", "text/plain", "self", "all", "standard", "5"),
    ]
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 5, 2**31, 2**63 - 1, 2**64, 0.5, 1e308])
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=10
)

SOURCE = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "content", "base64", "url", "file", "x"])},
    optional={"data": LEAVES, "content": JSON, "media_type": WORDS},
)
KINDS = st.sampled_from(
    ["text", "image", "document", "search_result", "tool_result", "thinking", "redacted_thinking", "tool_use", "x"]
)
BLOCK = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        **dict.fromkeys(("text", "thinking", "data", "id", "name", "tool_use_id", "title", "context"), WORDS),
        "input": JSON,
        "content": JSON,
        "source": SOURCE | WORDS,
        "is_error": st.none() | st.booleans(),
    },
)
CONTENT = WORDS | st.lists(BLOCK | JSON, max_size=4)
TURNS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": CONTENT}) | JSON,
    max_size=4,
)


def outcome(body: dict[str, Any]) -> GenerationRequest | ApiError:
    dialect = MESSAGES if "max_tokens" in body else COUNT_TOKENS
    try:
        parsed = dialect.parse(body)
    except ApiError as error:
        return error
    try:
        return generation_built(parsed, CALLER)
    except ApiError as error:
        error.rename_fields(parsed.field_names)
        return error


def ends_well(body: dict[str, Any]) -> None:
    result = outcome(body)
    if isinstance(result, GenerationRequest):
        assert request_from_plain(json.loads(json.dumps(request_to_plain(result)))) == result
        return
    assert result.status == 400
    assert result.param is not None
    assert result.param.split(".")[0] in FIELDS
    assert result.message.startswith(result.param)


@examples(150)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), st.booleans())
def test_any_json_in_fields_is_read_or_refused(fields, is_counted):
    body = message(tools=[TOOL]) | fields
    if is_counted:
        del body["max_tokens"]
    ends_well(body)


@examples(200)
@given(TURNS, CONTENT)
def test_any_blocks_in_turns_are_read_or_refused(turns, system):
    ends_well(message(messages=[TURN, *turns], system=system))
