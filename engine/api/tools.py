"""Functions that a model may call, and how it chooses among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function."""

    name: str
    parameters: Json = None
    """Its JSON Schema, None for a function without arguments."""
    is_strict: bool = False
    """Its arguments are held to the schema."""
    spec: dict[str, Json] = field(default_factory=dict)
    """The tool as the template sees it."""


class ToolMode(StrEnum):
    """How calls are chosen."""

    NONE = "none"
    """The output is not searched for calls."""
    AUTO = "auto"
    """The model decides."""
    REQUIRED = "required"
    """At least one call."""
    NAMED = "named"
    """One call of one function."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The mode, and the functions that may be called."""

    mode: ToolMode = ToolMode.NONE
    names: tuple[str, ...] = ()
    """NAMED: the function. AUTO and REQUIRED: the functions that may be called, empty for all."""
    is_parallel: bool = True
    """False: at most one call."""
    whitespace: str = ""
    closes_objects: bool = True
    """Both for the JSON of enforced calls, as in `Constraint`."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of call number `index` of a choice: first `id` and `name`, then more of `arguments` (JSON text)."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
