"""Finds markers in text that arrives in pieces, and holds back only what may still become a marker."""

from __future__ import annotations

import re


class MarkerCutter:
    """A splitter of text at markers; of two that overlap, the one that starts first counts. Linear in the text.

    NOTE: no marker may end before the end of another that starts at the same place or earlier: the shorter one would
    win in some splits.
    """

    def __init__(self, *markers: str) -> None:
        ordered = sorted(markers, key=len, reverse=True)
        self._markers = ordered
        self._pattern = re.compile("(" + "|".join(map(re.escape, ordered)) + ")")
        self._firsts = frozenset(marker[0] for marker in markers)
        self._longest = len(ordered[0])
        self._held = ""

    def feed(self, text: str, most: int = 0) -> list[str]:
        """Return texts and markers in turn, beginning and ending with a text. Stop after `most` markers (0: never).

        After `most` markers the last text is all the rest, and nothing is held back.
        """
        pieces = self._pattern.split(self._held + text, maxsplit=most)
        self._held = ""
        if most and len(pieces) > 2 * most:
            return pieces
        num_held = self._num_held(pieces[-1])
        if num_held:
            self._held = pieces[-1][-num_held:]
            pieces[-1] = pieces[-1][:-num_held]
        return pieces

    def flush(self) -> str:
        """Return the text that was held back: it did not become a marker."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        """Return the length of the longest end of the text that begins a marker."""
        start = max(0, len(text) - self._longest + 1)
        for index in range(start, len(text)):
            if text[index] in self._firsts and any(marker.startswith(text[index:]) for marker in self._markers):
                return len(text) - index
        return 0


class TagAhead:
    """A check whether text begins with one of these tags, after white space."""

    def __init__(self, *tags: str) -> None:
        self._tags = tags
        self._space: list[str] = []
        self._start = ""

    def feed(self, text: str) -> tuple[str, str, str] | None:
        """Return None while undecided, then once (white space, the tag or "", the text after it)."""
        if not self._start:
            stripped = text.lstrip()
            self._space.append(text[: len(text) - len(stripped)])
            text = stripped
        if not text:
            return None
        self._start += text
        for tag in self._tags:
            if self._start.startswith(tag):
                return "".join(self._space), tag, self._start[len(tag) :]
        if any(tag.startswith(self._start) for tag in self._tags):
            return None
        return "".join(self._space), "", self._start

    def flush(self) -> tuple[str, str]:
        """Return white space and text that were held back: they did not become a tag."""
        return "".join(self._space), self._start
