"""Any JSON body is refused by name or read into messages."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.messages import messages_walk
from chat.api.responses.messages import messages_of, sent_path
from chat.api.responses.schema import ParsedResponse, ResponseRequest, response_parse
from chat.errors import ApiError
from tests.examples import examples

WORDS = st.sampled_from(
    [
        "",
        "user",
        "assistant",
        "message",
        "function",
        "function_call",
        "reasoning",
        "json_schema",
        "auto",
        "x",
        "\0",
        "\u2028",
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.floats(allow_nan=False, allow_infinity=False), WORDS
)
NAMES = st.sampled_from(
    [
        *("type", "role", "content", "text", "name", "id", "call_id", "arguments"),
        *("output", "summary", "format", "schema", "effort", "tools", "mode"),
    ]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [*ResponseRequest().fields, "tool_choice", "model", "stream", "metadata", "top_k", "stop", "structured_outputs"]
)

PART_TYPES = st.sampled_from(["input_text", "output_text", "input_file", "refusal", "x"])
CONTENT = st.one_of(
    WORDS, st.lists(st.fixed_dictionaries({"type": PART_TYPES}, optional={"text": SCALARS}), max_size=2)
)
ITEM = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "x"]), "content": CONTENT}),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": WORDS, "name": WORDS, "arguments": WORDS}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": WORDS, "output": CONTENT}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": JSON, "content": JSON}),
    JSON,
)


def read_or_refused(body: dict[str, Any]) -> ParsedResponse | ApiError:
    try:
        return response_parse(body)
    except ApiError as error:
        return error


@given(body=st.dictionaries(FIELDS, JSON, max_size=4), given_input=JSON)
@examples(120)
def test_any_fields_are_read_or_refused_by_name(body: dict[str, Any], given_input: Any) -> None:
    read = read_or_refused({"input": given_input, **body})
    if isinstance(read, ApiError):
        assert read.status == 400
        assert "messages" not in (read.param or "")
    else:
        orjson.dumps(read.response.echo_fields)


@given(items=st.lists(ITEM, min_size=1, max_size=4))
@examples(120)
def test_any_items_are_refused_or_converted_to_messages(items: list[Any]) -> None:
    read = read_or_refused({"input": items})
    if isinstance(read, ApiError):
        assert (read.status, (read.param or "").split(".")[0]) == (400, "input")
        return
    orjson.dumps(read.items)
    paired = [(f"input.{index}", item) for index, item in enumerate(read.items) if item["type"] != "item_reference"]
    messages, origins = messages_of("be brief", paired)
    assert len(messages) == len(origins)
    place = "input."
    try:
        assert len(messages_walk(messages, model="m", max_parts=100)) == len(messages)
    except ApiError as error:
        place = sent_path(error.param or "", origins) or ""
    assert place.startswith("input.")
