"""Whether an answer has begun to repeat itself: the last tokens are one pattern, several times in a row. Pure function of the ids."""

from __future__ import annotations

from engine.api.sampling import RepetitionRule


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
