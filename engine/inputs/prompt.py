"""What the model reads, as the rest of the engine gets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is that of `token_ids`: where the prompt was truncated, what is left of it; None where nobody has spelled it yet.

    `end_ids`: tokens that end an answer to this prompt, beside those that end any answer of the model.
    """

    token_ids: list[int]
    text: str | None
    end_ids: tuple[int, ...] = ()
