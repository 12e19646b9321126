"""The Responses API in the registry. Its errors have the shape of the Lightcone dialect."""

from chat.api.dialect import DialectEntry

RESPONSES = DialectEntry(
    urls=("chat.api.responses.urls",),
    error_format="chat.api.responses.dialect:RESPONSES",
    path_prefixes=("/v1/responses",),
    segments=("responses",),  # as of Anthropic's
    counted_routes=("/v1/responses",),
    described_in=("chat.api.responses.openapi",),
    batch_endpoints={"/v1/responses": "chat.api.responses.urls"},
    stored_endings={"response": "chat.api.responses.kept:response_ended"},
)
