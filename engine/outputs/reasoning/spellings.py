"""The token sequences that a marker of plain text may come in: tokens merge with the spaces, line breaks and
punctuation beside it."""

from __future__ import annotations

from collections.abc import Iterable

from engine.tokenizers.tokenizer import Tokenizer

BEFORE = ("", " ", "\n", "\n\n", ".", ".\n", ".\n\n", "!", "?", ")", '"', "`", ":", ",")
AFTER = ("", "\n", "\n\n", " ")


def marker_spellings(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each way to spell one of the texts, that of the first on its own first; none holds another one."""
    spaced = [before + text + after for text in texts for before in BEFORE for after in AFTER]
    spellings = [list(ids) for ids in dict.fromkeys(tuple(tokenizer.encode(text)) for text in spaced)]
    return [ids for ids in spellings if not any(other != ids and _holds(ids, other) for other in spellings)]


def _holds(ids: list[int], other: list[int]) -> bool:
    return any(ids[start : start + len(other)] == other for start in range(len(ids) - len(other) + 1))
