"""The registry of dialects. To add one, write its folder and add its entry to `DIALECTS`; no other code changes.

The middleware, the URL table, metrics, batches, stored answers and the OpenAPI document read what they need from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from chat.api.anthropic.entry import ANTHROPIC
from chat.api.dialect import DialectEntry
from chat.api.ollama.entry import OLLAMA
from chat.api.openai.entry import OPENAI
from chat.api.responses.entry import RESPONSES
from chat.api.scale.entry import SCALE

DIALECTS: tuple[DialectEntry, ...] = (ANTHROPIC, RESPONSES, SCALE, OLLAMA, OPENAI)
"""Routes are tried in this order. OpenAI's come last, as the last of them answers whatever else is below /v1."""


def load_named(name: str) -> Any:
    """Import `module:NAME` and return the object."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def batch_endpoints() -> dict[str, str]:
    """Return the module with the `urlpatterns` of each endpoint that lines of batches may ask for."""
    return {endpoint: urls for entry in DIALECTS for endpoint, urls in sorted(entry.batch_endpoints.items())}


def counted_routes() -> frozenset[str]:
    return frozenset(route for entry in DIALECTS for route in entry.counted_routes)


def stored_endings() -> dict[str, str]:
    """Return `module:function` of what ends a stored answer, by its kind."""
    return {kind: name for entry in DIALECTS for kind, name in entry.stored_endings.items()}
