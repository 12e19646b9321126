"""Finds the places where an answer must end: stop strings in its text, repetition in its tokens.

Text that may still become a stop string is held back. Each stop string is a Knuth-Morris-Pratt automaton, so a
character costs constant time per stop string.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.request import RepetitionRule


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string that was found."""

    stop: str
    text: str
    """The text to send before the answer ends."""


class StopFinder:
    """A search for stop strings in text that arrives token by token.

    If one piece completes several strings, the one that starts first wins, ties by order of the list. With
    `include_stop` nothing is held back, as the stop string itself is sent.
    """

    def __init__(self, stops: tuple[str, ...], include_stop: bool = False) -> None:
        self._automata = [_Automaton(stop) for stop in stops]
        self._include_stop = include_stop
        self._held = ""

    def feed(self, piece: str, search: bool = True) -> str | StopMatch:
        """Return the text to send now, or the match.

        `search` False: a stop string can only begin after this piece.
        """
        if not self._automata:
            return piece
        if not search:
            return self.flush() + piece
        text = self._held + piece
        matches = [
            (end - len(automaton.stop), index, end)
            for index, automaton in enumerate(self._automata)
            if (end := automaton.feed(piece)) is not None
        ]
        if matches:
            start, index, end = min(matches)  # counted from the start of the piece: a match may start before it
            return StopMatch(
                self._automata[index].stop, piece[:end] if self._include_stop else text[: len(self._held) + start]
            )
        if self._include_stop:
            return piece
        num_held = max(automaton.matched for automaton in self._automata)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """Return what was held back and start the search anew."""
        held, self._held = self._held, ""
        for automaton in self._automata:
            automaton.matched = 0
        return held


class _Automaton:
    """The automaton of one stop string."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """How many characters of the stop string the text now ends with."""
        self._borders = [0] * len(stop)
        for index in range(1, len(stop)):
            self._borders[index] = self._next(self._borders[index - 1], stop[index])

    def feed(self, piece: str) -> int | None:
        """Advance over the piece up to the first full match; return its end in the piece, None without a match."""
        for index, character in enumerate(piece):
            self.matched = self._next(self.matched, character)
            if self.matched == len(self.stop):
                return index + 1
        return None

    def _next(self, matched: int, character: str) -> int:
        while matched and self.stop[matched] != character:
            matched = self._borders[matched - 1]
        return matched + 1 if self.stop[matched] == character else 0


class RepetitionFinder:
    """A search for repetition at the end of an answer; it is fed every token.

    A pattern of p tokens occurs `count` times in a row when each of the last p * (count - 1) tokens equals the one p
    places before it. After a token that differs, the next possible end is that many tokens later, so the pattern is
    checked again only then, and only over the new tokens. An answer without repetition costs a comparison per pattern
    length now and then; no answer costs more than one per pattern length and token.
    """

    def __init__(self, rule: RepetitionRule) -> None:
        self._count = rule.min_count
        self._ids: list[int] = []
        self._due: dict[int, list[tuple[int, int]]] = {}
        """Checks by the length of the answer at which they are due: (pattern length, length up to which it is known to
        repeat)."""
        for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
            self._plan(size * self._count, size, size)

    def feed(self, token_id: int) -> bool:
        """Take the next token; return True if the answer now ends with a repeated pattern."""
        self._ids.append(token_id)
        length = len(self._ids)
        is_found = False
        for size, known in self._due.pop(length, ()):
            num_repeating = self._num_repeating(size, length - known)
            if num_repeating == length - known:
                is_found = True
                self._plan(length + 1, size, length)
            else:
                self._plan(length + size * (self._count - 1) - num_repeating, size, length)
        return is_found

    def _plan(self, length: int, size: int, known: int) -> None:
        self._due.setdefault(length, []).append((size, known))

    def _num_repeating(self, size: int, most: int) -> int:
        """Count how many of the last `most` tokens, from the end, equal the one `size` places before."""
        ids = self._ids
        last = len(ids) - 1
        for number in range(most):
            if ids[last - number] != ids[last - number - size]:
                return number
        return most
