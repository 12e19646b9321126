"""Stop strings in a growing text: the answer ends before (or with) the first one; only what may still become one is held back.

Each stop string is a Knuth-Morris-Pratt automaton, so a character costs constant time per stop string, whatever the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.sampling import RepetitionRule


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The stop string that was found; `text` is what may still go out before the end."""

    stop: str
    text: str


class StopFinder:
    """Feed text in pieces, one per token.

    If one piece completes several strings, the one that starts first wins, ties by order of the list. With `include_stop`
    nothing is held back, as the stop string itself goes out too.
    """

    def __init__(self, stops: tuple[str, ...], include_stop: bool = False) -> None:
        self._automata = [_Automaton(stop) for stop in stops]
        self._include_stop = include_stop
        self._held = ""

    def feed(self, piece: str, search: bool = True) -> str | StopMatch:
        """Return the text that is released now, or the match. `search` False: no stop string may begin before the end of this piece."""
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
        """What was held back; no stop string can come any more."""
        held, self._held = self._held, ""
        for automaton in self._automata:
            automaton.matched = 0
        return held


class _Automaton:
    """One stop string; `matched`: how many of its characters the text ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = [0] * len(stop)
        for index in range(1, len(stop)):
            self._borders[index] = self._next(self._borders[index - 1], stop[index])

    def feed(self, piece: str) -> int | None:
        """Advance over the piece, up to the first full match; returns where in the piece that ends."""
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
    """Fed every token of an answer.

    A pattern of p tokens stands there `count` times when the last p * (count - 1) tokens all equal the one p places before. Where one
    differs, the next chance is that many tokens later, so a pattern is looked at then, and only at the tokens that have come since.
    An answer that does not repeat itself costs a comparison per pattern length every so often; none costs more than one a token.
    """

    def __init__(self, rule: RepetitionRule) -> None:
        self._count = rule.min_count
        self._ids: list[int] = []
        self._due: dict[int, list[tuple[int, int]]] = {}
        """At which length of the answer to look at which pattern length; tokens up to the second number are known to repeat."""
        for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
            self._plan(size * self._count, size, size)

    def feed(self, token_id: int) -> bool:
        """Take the next token; whether the answer now ends with repeats."""
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
        """How many of the last `most` tokens, counted from the end, equal the one `size` places before."""
        ids = self._ids
        last = len(ids) - 1
        for number in range(most):
            if ids[last - number] != ids[last - number - size]:
                return number
        return most
