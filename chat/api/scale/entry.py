"""The Scale dialect in the registry, in both generations."""

from chat.api.dialect import DialectEntry

SCALE = DialectEntry(
    urls=("chat.api.scale.urls",),
    error_format="chat.api.scale.dialect:SCALE",
    path_prefixes=("/v4", "/v5"),
    segments=("v4", "v5"),
    counted_routes=("/v4/beta/chat/completions", "/v5/chat/completions", "/v4/beta/completions"),
    described_in=("chat.api.scale.openapi",),
)
