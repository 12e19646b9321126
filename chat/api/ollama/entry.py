"""Ollama's API in the registry."""

from chat.api.dialect import DialectEntry

OLLAMA = DialectEntry(
    urls=("chat.api.ollama.urls",),
    error_format="chat.api.ollama.dialect:OLLAMA_FORMAT",
    path_prefixes=("/api",),
    segments=("api",),
    counted_routes=("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"),
    described_in=("chat.api.ollama.openapi",),
)
