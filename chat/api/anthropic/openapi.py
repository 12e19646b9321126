"""The routes of Anthropic's Messages API, described."""

from __future__ import annotations

from chat.api.anthropic.schema import CountTokensRequest, MessagesRequest
from chat.api.openapi.answers import ASK, CHAT_EXAMPLE, FIELD_AT_FAULT
from chat.api.openapi.describe import (
    INTEGER,
    NULL,
    TEXT,
    Operation,
    array,
    body_of,
    many,
    obj,
    one_of,
    or_null,
    ref,
)

TAG = "messages"
BLOCKS = (
    obj(type={"const": "text"}, text=TEXT, citations=NULL) | {"required": ["type", "text"]},
    obj(type={"const": "thinking"}, **many(TEXT, "thinking signature")),
    obj(type={"const": "tool_use"}, **many(TEXT, "id name"), input={"type": "object"}),
)
EVENTS = (
    *("message_start", "ping", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "error"),
)
STOP_REASONS = ("end_turn", "max_tokens", "stop_sequence", "tool_use", None)

SCHEMAS = {
    "MessageError": obj(
        type=one_of("error"),
        error=obj(**many(TEXT, "type message code"), param=FIELD_AT_FAULT),
        request_id=or_null(TEXT),
    ),
    "MessageUsage": obj(
        input_tokens={**INTEGER, "description": "Those that were not in the cache."},
        cache_creation_input_tokens={**INTEGER, "description": "Always 0."},
        **many(INTEGER, "cache_read_input_tokens output_tokens"),
        output_tokens_details=obj(thinking_tokens=INTEGER),
        cache_creation=obj(**many(INTEGER, "ephemeral_5m_input_tokens ephemeral_1h_input_tokens")),
        service_tier=one_of("standard", "priority"),
    ),
    "MessageBody": obj(
        {"diagnostics": {"type": "object", "description": "Where it was asked for."}},
        **many(TEXT, "id model"),
        type=one_of("message"),
        role=one_of("assistant"),
        content=array({"oneOf": [*BLOCKS]}),
        stop_reason=one_of(*STOP_REASONS),
        stop_sequence=or_null(TEXT),
        usage=ref("MessageUsage"),
    ),
    "TokenCountBody": obj(input_tokens=INTEGER),
    "MessageEvent": obj(type=one_of(*EVENTS)),
}
OPERATIONS = (
    Operation(
        "POST /v1/messages",
        "create_message",
        "Create a message. In the shape of Anthropic's API; as a stream, server-sent events, each named as its type.",
        body=body_of(MessagesRequest, **CHAT_EXAMPLE),
        answer="MessageBody",
        stream="MessageEvent",
        error="MessageError",
    ),
    Operation(
        "POST /v1/messages/count_tokens",
        "count_message_tokens",
        "Count the tokens of a message",
        body=body_of(CountTokensRequest, messages=ASK),
        answer="TokenCountBody",
        error="MessageError",
    ),
)
