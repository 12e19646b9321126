"""The Lightcone dialect, which is also OpenAI's, in the registry."""

from chat.api.dialect import DialectEntry

BOTH_FORMS = (
    *("chat/completions", "chat/completions/render", "completions", "embeddings", "rerank"),
    *("audio/transcriptions", "audio/translations", "tokenize", "detokenize"),
)
"""Routes that exist bare and under /v1."""

OPENAI = DialectEntry(
    urls=("chat.api.openai.urls",),
    error_format="chat.api.openai.dialect:LIGHTCONE",
    path_prefixes=(),
    segments=(
        *("v1", "v2", "models", "chat", "completions", "embeddings", "rerank", "audio"),
        *("tokenize", "detokenize"),
    ),
    counted_routes=(*(f"{prefix}/{route}" for route in BOTH_FORMS for prefix in ("/v1", "")), "/v2/rerank"),
    described_in=("chat.api.openai.openapi",),
    batch_endpoints={
        "/v1/chat/completions": "chat.api.openai.urls",
        "/v1/completions": "chat.api.openai.urls",
        "/v1/embeddings": "chat.api.openai.urls",
    },
    stored_endings={"chat.completion": "chat.api.chat_format.stored:chat_ended"},
)
