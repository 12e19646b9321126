"""Escapes for control texts that a client types, so that they never become control tokens.

Before rendering, each control text in a client's string is replaced by a mark that cannot be guessed. After rendering,
the marks become pieces that are encoded as ordinary text. Marks at the edges of strings reveal a control text that only
arises when the template joins two strings. Marks pass through templates like ordinary characters. Two more marks show
where a message, or its reasoning, is left open.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import Json

FIRST, LAST = "\ue000", "\ue001"
EDGE, END, OPEN = "edge", "end", "open"
NONCE_BYTES = 8
REASONING_ENDS = ("</think>", "</seed:think>", "[/THINK]")
"""Texts with which templates close reasoning; removed after reasoning that is left open."""

MAX_CUT_CHARS = 256
"""Only control texts up to this length are looked for across the edges of strings; real ones have a few dozen
characters."""
MAX_BRANCHES = 100
"""The deepest nesting of an expression that Python still compiles."""

# NOTE: matches the marks of every request; compiling an expression per nonce would cost more than all the rest. A mark
# that a client forges cannot swallow one of ours, because no mark can begin between the ends of another.
_MARK = re.compile(rf"(?:{FIRST}|\\ue000)([0-9a-f]{{{2 * NONCE_BYTES}}})\.(\w+)(?:{LAST}|\\ue001)")
_CLOSED = re.compile(r"\s*(?:" + "|".join(map(re.escape, REASONING_ENDS)) + r")\s*")


class ControlTexts:
    """The texts that a tokenizer reads as one control token anywhere, and the beginnings and ends of these texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index the texts. Blank ones are left out, because some vocabularies have runs of spaces as tokens."""
        ordered = sorted({text for text in texts if text.strip()}, key=len, reverse=True)
        self.pattern = re.compile(_longest_of(ordered)) if ordered else None
        cut = [text for text in ordered if len(text) <= MAX_CUT_CHARS]
        self.longest = max(map(len, cut), default=0)
        # NOTE: plain words are left out, or the words that templates compare with ("user") would get marks.
        self._heads = frozenset(text[:at] for text in cut for at in range(1, len(text)) if not text[:at].isalnum())
        self._tails = frozenset(text[at:] for text in cut for at in range(1, len(text)) if not text[at:].isalnum())

    def may_begin_at_end_of(self, text: str) -> bool:
        return any(text[-size:] in self._heads for size in range(1, min(self.longest, len(text) + 1)))

    def may_end_at_start_of(self, text: str) -> bool:
        return any(text[:size] in self._tails for size in range(1, min(self.longest, len(text) + 1)))


def _longest_of(texts: list[str], depth: int = 0) -> str:
    """Return an expression that matches the longest of `texts` (distinct, longest first).

    Common beginnings are written once, so that matching does not try a thousand reserved tokens one by one.
    """
    if depth > MAX_BRANCHES:
        return "|".join(map(re.escape, texts))
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[:1], []).append(text)
    ends = bool(by_first.pop("", None))
    branches = []
    for group in by_first.values():
        common = os.path.commonprefix(group)
        rests = [text[len(common) :] for text in group]
        branches.append(re.escape(common) + (_longest_of(rests, depth + 1) if len(rests) > 1 else ""))
    return f"(?:{'|'.join(branches)})" + ("?" if ends else "")


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A run of prompt text."""

    text: str
    is_typed: bool = False
    """A client typed it: encode it as ordinary text, even where it spells a control token."""


class ControlTokenEscaper:
    """An escaper for the strings of one request, with marks of its own.

    `end_mark` goes after the text of a message that is left open, `open_mark` after reasoning that is left open.
    """

    def __init__(self, controls: ControlTexts) -> None:
        self._controls = controls
        self._nonce = secrets.token_hex(NONCE_BYTES)
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._edge, self.end_mark, self.open_mark = self._spell(EDGE), self._spell(END), self._spell(OPEN)

    def escape(self, value: Json) -> Json:
        """Return the value with control texts escaped in all its strings and keys.

        Raises RequestError for a value that is nested more deeply than Python recurses.
        """
        try:
            return self._escape_value(value)
        except RecursionError:
            raise RequestError(
                ErrorCode.INVALID_VALUE, "the messages, tools or variables are nested too deeply", "messages"
            ) from None

    def escaped_length(self, num_chars: int) -> int:
        """Return the most characters that a text of `num_chars` characters can have once it is escaped."""
        return num_chars * 4 * len(self._spell(str(len(self._texts)) + EDGE))

    def close_open_reasoning(self, text: str) -> str:
        """Remove `open_mark`, and what the template wrote after it to close the reasoning."""
        before, *others = text.split(self.open_mark)
        return before + "".join(_CLOSED.sub("", other, count=1) if _CLOSED.match(other) else other for other in others)

    def split(self, text: str) -> list[PromptPiece]:
        """Cut rendered text at its marks into pieces, in order. No piece is empty or contains a mark."""
        pieces: list[PromptPiece] = []
        plain: list[str] = []
        position = 0
        for match in _MARK.finditer(text):
            nonce, key = match.groups()
            if nonce != self._nonce:
                continue  # a client's own characters
            plain.append(text[position : match.start()])
            position = match.end()
            if key.isdecimal():
                pieces += self._part_forged(plain)
                pieces.append(PromptPiece(self._texts[int(key)], True))
                plain = []
        pieces += self._part_forged([*plain, text[position:]])
        return [piece for piece in pieces if piece.text]

    def _escape_value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._escape_text(value)
        if isinstance(value, list):
            return [self._escape_value(item) for item in value]
        if isinstance(value, dict):
            return {self._escape_text(key): self._escape_value(item) for key, item in value.items()}
        return value

    def _part_forged(self, strings: list[str]) -> list[PromptPiece]:
        """Join strings into pieces.

        A control text across a border between two strings was typed by a client, not by the template.
        """
        text = "".join(strings)
        if len(strings) == 1 or self._controls.pattern is None:
            return [PromptPiece(text)]
        edges, offset = set(), 0
        for string in strings[:-1]:
            offset += len(string)
            edges.add(offset)
        pieces, position = [], 0
        for match in self._controls.pattern.finditer(text):
            if any(edge in edges for edge in range(match.start() + 1, match.end())):
                pieces += [PromptPiece(text[position : match.start()]), PromptPiece(match.group(), True)]
                position = match.end()
        return [*pieces, PromptPiece(text[position:])]

    def _escape_text(self, text: str) -> str:
        controls = self._controls
        if controls.pattern is None:
            return text
        escaped = controls.pattern.sub(self._mark, text)
        if controls.may_begin_at_end_of(escaped):
            escaped += self._edge
        return self._edge + escaped if controls.may_end_at_start_of(escaped) else escaped

    def _mark(self, match: re.Match[str]) -> str:
        text = match.group()
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return self._spell(str(self._numbers[text]))

    def _spell(self, key: str) -> str:
        return f"{FIRST}{self._nonce}.{key}{LAST}"
