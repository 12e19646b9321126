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


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a loaded model needs in memory, in bytes, as its files say."""

    weights_bytes: int
    mapped_bytes: int
    cache_bytes: int
    cache_bytes_per_token: int
    scratch_bytes: int
    base_bytes: int
    context: int
    max_context: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.scratch_bytes + self.base_bytes

    def refusal(self, budget_bytes: int) -> str:
        """Return why the model does not fit, with the sum; empty if it does."""
        if self.total_bytes <= budget_bytes:
            return ""
        parts = {
            "weights": self.weights_bytes,
            "cache": self.cache_bytes,
            "the rest": self.scratch_bytes + self.base_bytes,
        }
        sum_text = ", ".join(f"{name} {value / 1e9:.2f} GB" for name, value in parts.items())
        return f"It needs {self.total_bytes / 1e9:.2f} GB ({sum_text}), and there are {budget_bytes / 1e9:.2f} GB."
