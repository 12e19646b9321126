"""Anthropic's Messages API in the registry."""

from chat.api.dialect import DialectEntry

ANTHROPIC = DialectEntry(
    urls=("chat.api.anthropic.urls",),
    error_format="chat.api.anthropic.dialect:MESSAGES",
    path_prefixes=("/v1/messages",),
    segments=("messages",),  # served below /v1 alone; a client without /v1 in its base URL gets an error in JSON
    counted_routes=("/v1/messages", "/v1/messages/count_tokens"),
    described_in=("chat.api.anthropic.openapi",),
)
