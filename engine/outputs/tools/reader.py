"""Reads a text that comes in pieces: each step waits for exactly the characters that decide it, so any split of the text reads the same.

Steps are generators: they yield to wait for more text, and return what they read. Parsers are written as plain nested steps (`yield from`),
and `ScriptedParser` feeds them. Nothing already consumed is looked at again, and what waits unread is never longer than the longest
literal: the work is linear in the text, however it is split.
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
    """A `Write` to two."""

    def write(text: str) -> None:
        first(text)
        second(text)

    return write


class Reader:
    """`text[at:]` is what has come and is not consumed; `has_ended`: no more will come."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.has_ended = False

    def add(self, text: str) -> None:
        """More text has come."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def peek(self) -> Steps[str]:
        """The next character, "" at the end of the text; consumes nothing."""
        while self.at == len(self.text):
            if self.has_ended:
                return ""
            yield
        return self.text[self.at]

    def see(self, *literals: str) -> Steps[str]:
        """The first of the literals that the text goes on with, or ""; consumes nothing."""
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
        """As `see`, but consumes the literal."""
        literal = yield from self.see(*literals)
        self.at += len(literal)
        return literal

    def give_back(self, literal: str) -> None:
        """Undo the step that has just consumed the literal."""
        self.at -= len(literal)

    def take_run(self, characters: str, write: Write) -> Steps[None]:
        """Consume characters as long as they are among these."""
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
        """Consume the text up to the first of the literals, and the literal, which is returned; "" if the text ended first.

        The one that starts first counts. Of the text before it only what may still become a literal is held back.
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
    """The literals as one alternation, which cannot backtrack, and the beginnings of them."""

    def __init__(self, literals: tuple[str, ...]) -> None:
        self.pattern = re.compile("|".join(re.escape(literal) for literal in sorted(literals, key=len)))
        self._beginnings = frozenset(literal[:size] for literal in literals for size in range(1, len(literal)))
        self._longest = max((len(literal) for literal in literals), default=1) - 1

    def held_from(self, text: str, at: int) -> int:
        """Where the longest end of `text[at:]` starts that may become a literal."""
        for start in range(max(at, len(text) - self._longest), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)


@lru_cache(maxsize=256)
def _search(literals: tuple[str, ...]) -> _Search:
    return _Search(literals)
