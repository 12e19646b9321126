"""Functions that a model may call, and how it is to choose among them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Tool:
    """One function. `parameters` is its JSON Schema, None for a function without arguments; `spec` is the tool as the template sees it."""

    name: str
    parameters: Json = None
    is_strict: bool = False
    spec: dict[str, Json] = field(default_factory=dict)


class ToolMode(StrEnum):
    """NONE: the output is not parsed. AUTO: the model decides. REQUIRED: at least one call. NAMED: one call of one function."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`names`: the function of NAMED; of AUTO and REQUIRED those that may be called (empty: all). `is_parallel` False: one call.

    `whitespace` and `closes_objects` say of the JSON of enforced calls what the same fields of `Constraint` say of its own.
    """

    mode: ToolMode = ToolMode.NONE
    names: tuple[str, ...] = ()
    is_parallel: bool = True
    whitespace: str = ""
    closes_objects: bool = True


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of call number `index` of a choice. The first piece has `id` and `name`; later ones only more of `arguments` (JSON text)."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
