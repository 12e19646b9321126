"""Reads text that arrives in fragments.

Each step waits for exactly the characters that decide it, so every split of the text reads alike.

Steps are generators: they yield to wait for more text and return what they read. Parsers are plain nested steps (`yield
from`), fed by `ScriptedParser`. Consumed text is never read again, and unread text is never longer than the longest
literal, so the work is linear in the text, however it is split.

    def read_header(reader: Reader) -> Steps[str]:
        name: list[str] = []
        stop = yield from reader.until((":", "\\n"), name.append)
        return "".join(name) if stop == ":" else ""
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Write = Callable[[str], object]

SPACE = " \t\r\n"


def both(first: Write, second: Write) -> Write:
    """Return a `Write` that writes to both."""

    def write(text: str) -> None:
        first(text)
        second(text)

    return write


class Reader:
    """The text of one choice: `text[at:]` has arrived and is not consumed. `has_ended`: no more will arrive."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.has_ended = False

    def add(self, text: str) -> None:
        """Append text that has arrived."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def peek(self) -> Steps[str]:
        """Return the next character without consuming it, "" at the end of the text."""
        while self.at == len(self.text):
            if self.has_ended:
                return ""
            yield
        return self.text[self.at]

    def see(self, *literals: str) -> Steps[str]:
        """Return the first of the literals that the text continues with, without consuming it, or ""."""
        while True:
            must_wait = False
            for literal in literals:
                if self.text.startswith(literal, self.at):
                    return literal
                if not self.has_ended and literal.startswith(self.text[self.at : self.at + len(literal)]):
                    must_wait = True
                    break
            if not must_wait:
                return ""
            yield

    def take(self, *literals: str) -> Steps[str]:
        """Return the literal as `see` does, and consume it."""
        literal = yield from self.see(*literals)
        self.at += len(literal)
        return literal

    def give_back(self, literal: str) -> None:
        """Unread the literal that was just consumed."""
        self.at -= len(literal)

    def take_run(self, characters: str, write: Write) -> Steps[None]:
        """Consume characters while they are among these."""
        while True:
            start, text = self.at, self.text
            while self.at < len(text) and text[self.at] in characters:
                self.at += 1
            if self.at > start:
                write(text[start : self.at])
            if self.at < len(text) or self.has_ended:
                return
            yield

    def skip_space(self) -> Steps[None]:
        """Consume white space."""
        yield from self.take_run(SPACE, lambda text: None)

    def until(self, literals: tuple[str, ...], write: Write) -> Steps[str]:
        """Consume the text up to the earliest literal, and the literal. Return it, "" if the text ended first.

        Of the text before it, only what may still become a literal is held back.
        """
        search = _search(literals)
        while True:
            match = search.pattern.search(self.text, self.at) if literals else None
            held_from = len(self.text) if self.has_ended else search.held_from(self.text, self.at)
            if match and match.start() <= held_from:
                self._write_to(match.start(), write)
                self.at = match.end()
                return match.group()
            self._write_to(held_from, write)
            if self.has_ended:
                return ""
            yield

    def _write_to(self, end: int, write: Write) -> None:
        if end > self.at:
            write(self.text[self.at : end])
            self.at = end


class _Search:
    """The literals as one alternation, which cannot backtrack, and their beginnings."""

    def __init__(self, literals: tuple[str, ...]) -> None:
        self.pattern = re.compile("|".join(re.escape(literal) for literal in sorted(literals, key=len)))
        self._beginnings = frozenset(literal[:size] for literal in literals for size in range(1, len(literal)))
        self._longest = max((len(literal) for literal in literals), default=1) - 1

    def held_from(self, text: str, at: int) -> int:
        """Return where the longest end of `text[at:]` starts that may become a literal."""
        for start in range(max(at, len(text) - self._longest), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)


@lru_cache(maxsize=256)
def _search(literals: tuple[str, ...]) -> _Search:
    return _Search(literals)
