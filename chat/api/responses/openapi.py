"""The routes of the Responses API, described."""

from __future__ import annotations

from chat.api.openapi.answers import ASK, ITEMS, STARTING_AFTER
from chat.api.openapi.describe import (
    ANY_OBJECT,
    BOOLEAN,
    FETCHED,
    INTEGER,
    PAGING,
    TEXT,
    Body,
    Operation,
    many,
    obj,
    one_of,
    or_null,
    query,
    text,
)
from chat.api.request.fields import RequestField
from chat.api.request.schema import CHAT_SCHEMA
from chat.api.responses.schema import ALIKE, FURTHER, ResponseRequest

TAG = "responses"
RESPONSE = "/v1/responses/{response_id}"


class Input(RequestField):
    """The field `input`, which items.py reads."""

    json_schema = {"oneOf": [TEXT, {**ITEMS, "minItems": 1}]}


class ToolChoice(RequestField):
    """The field `tool_choice`, which tools.py reads."""

    json_schema = {"oneOf": [one_of("none", "auto", "required"), ANY_OBJECT]}


BODY = Body(
    "ResponseRequest",
    {
        "input": Input(help_text="Text or items."),
        "tool_choice": ToolChoice(help_text="Which functions may, or must, be called."),
        **ResponseRequest().fields,
        **{name: CHAT_SCHEMA.fields[name] for name in (*ALIKE, *FURTHER)},
    },
    {"input": ASK[0]["content"], "max_output_tokens": 32},
)
COUNTED = Body(BODY.name, BODY.fields, {"input": ASK[0]["content"]})

SCHEMAS = {
    "ResponseBody": obj(
        **many(TEXT, "id model"),
        object=one_of("response"),
        created_at=INTEGER,
        completed_at=or_null(INTEGER),
        status=one_of("completed", "incomplete", "failed", "cancelled", "queued", "in_progress"),
        output={**ITEMS, "description": "Reasoning, messages and function calls, in order."},
        usage={"type": ["object", "null"], "description": "Tokens of input and output."},
        error={"type": ["object", "null"], "description": "Of a failed response: code and message."},
        incomplete_details={"type": ["object", "null"], "description": "Of an incomplete response: reason."},
        metadata={"type": "object", "additionalProperties": TEXT, "description": "As sent."},
    ),
    "ResponseEvent": obj(type=text("As the frame is named."), sequence_number=INTEGER),
    "InputTokenCount": obj(object=one_of("response.input_tokens"), input_tokens=INTEGER),
}
OPERATIONS = (
    Operation(
        "POST /v1/responses",
        "create_response",
        "Create a response. At once, as a stream of server-sent events that are named as their type, "
        "or in the background.",
        body=BODY,
        answer="ResponseBody",
        stream="ResponseEvent",
    ),
    Operation(
        f"GET {RESPONSE}",
        "retrieve_response",
        "One response. A stored response as it is now, or its events behind a number.",
        parameters=(query("stream", BOOLEAN), STARTING_AFTER),
        answer="ResponseBody",
        stream="ResponseEvent",
    ),
    Operation(
        f"DELETE {RESPONSE}",
        "delete_response",
        "Delete a response. One in the background is stopped.",
        answer="Deleted",
    ),
    Operation(
        f"POST {RESPONSE}/cancel",
        "cancel_response",
        "Cancel a response. One in the background ends.",
        answer="ResponseBody",
        errors=FETCHED,
    ),
    Operation(
        f"GET {RESPONSE}/input_items",
        "list_response_input_items",
        "The input of a response. With the items of the responses before.",
        parameters=PAGING,
        answer="ItemList",
    ),
    Operation(
        "POST /v1/responses/input_tokens",
        "count_response_input_tokens",
        "Count the tokens of an input",
        body=COUNTED,
        answer="InputTokenCount",
    ),
)
