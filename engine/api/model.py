"""What a model is, as its files say."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What the files of a model say."""

    architecture: str
    num_layers: int
    context: int
    """Tokens."""
    format: str
    """Of its weights, such as Q4_K_M or bfloat16."""
    has_template: bool
    tool_parser: str
    reasoning_parser: str
    licence: str = ""
    defaults: dict[str, float] = field(default_factory=dict)
    """What its makers recommend for sampling."""
