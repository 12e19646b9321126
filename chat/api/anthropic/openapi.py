"""The routes of Anthropic's Messages API, described."""

from __future__ import annotations

from chat.api.anthropic.schema import CountTokensRequest, MessagesRequest
from chat.api.openapi.answers import CHAT_EXAMPLE
from chat.api.openapi.describe import requests, routes
from chat.api.openapi.notation import components

SCHEMAS = requests(CountTokensRequest, MessagesRequest) | components(
    """
    MessageError = {
        type: 'error'; error: {type, message, code: string; param: fault}; request_id: string | null
    }
    MessageUsage = {
        input_tokens: integer "Those that were not in the cache."; cache_creation_input_tokens: integer "Always 0.";
        cache_read_input_tokens, output_tokens: integer; output_tokens_details: {thinking_tokens: integer};
        cache_creation: {ephemeral_5m_input_tokens, ephemeral_1h_input_tokens: integer};
        service_tier: 'standard' | 'priority'
    }
    text = {type: 'text'; text: string}
    thinking = {type: 'thinking'; thinking, signature: string}
    tool_use = {type: 'tool_use'; id, name: string; input: object}
    MessageBody = {
        id, model: string; type: 'message'; role: 'assistant'; content: [text | thinking | tool_use];
        stop_reason: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | null; stop_sequence: string | null;
        usage: MessageUsage; diagnostics?: object "Where it was asked for."
    }
    MessageEvent = {
        type: 'message_start' | 'ping' | 'content_block_start' | 'content_block_delta' | 'content_block_stop'
            | 'message_delta' | 'message_stop' | 'error'
    }
    TokenCountBody = {input_tokens: integer}
    """
)
DOCUMENT = {"type": "document", "source": {"type": "text", "data": "Say hello."}}
OPERATIONS = routes(
    "messages",
    """
    POST /v1/messages create_message(MessagesRequest) -> MessageBody stream MessageEvent
        Create a message. In the shape of Anthropic's API; as a stream, server-sent events, each named as its type.
    POST /v1/messages/count_tokens count_message_tokens(CountTokensRequest) -> TokenCountBody
        Count the tokens of a message
    """,
    error="MessageError",
    create_message=CHAT_EXAMPLE,
    count_message_tokens={"messages": [{"role": "user", "content": [DOCUMENT]}]},
)
