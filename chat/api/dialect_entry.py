"""What the rest of the house needs to know of a dialect, as data: its routes, its errors, its place in metrics and
batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DialectEntry:
    """A dialect in the registry. Modules and objects are named, not imported, so that a process loads what it uses.

    ECHO = DialectEntry(
        urls=("echo.urls",),
        error_format="echo.dialect:ECHO_FORMAT",
        path_prefixes=("/v9",),
        segments=("v9",),
        counted_routes=("/v9/echo",),
        described_in=("echo.openapi",),
    )
    """

    urls: tuple[str, ...]
    """Modules with its `urlpatterns`."""
    error_format: str
    """`module:NAME` of the object that writes its errors."""
    path_prefixes: tuple[str, ...]
    """Paths below these have its error shape. Empty: those of no other dialect."""
    segments: tuple[str, ...]
    """The first segments of its paths. Requests below them never reach pages."""
    counted_routes: tuple[str, ...] = ()
    """Routes that metrics count by name."""
    described_in: tuple[str, ...] = ()
    """Modules that describe its routes for the OpenAPI document (chat/api/openapi/describe.py)."""
    batch_endpoints: Mapping[str, str] = field(default_factory=dict)
    """The module with the `urlpatterns` of each endpoint that lines of batches may ask for."""
    stored_endings: Mapping[str, str] = field(default_factory=dict)
    """`module:function` that ends a stored answer whose run went on alone, by kind of answer."""
