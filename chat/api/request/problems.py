"""What is wrong with the messages of one request, collected in order while they are walked; the walk stops at the tenth."""

from __future__ import annotations

from chat.errors import MAX_PROBLEMS, Problem, problems_error


class Problems:
    """Filled by everything that looks at messages."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def refuse(self, path: str, message: str, code: str = "invalid_value") -> None:
        """Note that the value at `path` is refused; `message` goes on from its name."""
        self._found.append(Problem(code, f"{path} {message}", path))

    @property
    def is_full(self) -> bool:
        return len(self._found) >= MAX_PROBLEMS

    def raise_any(self) -> None:
        """Raises ApiError if anything was noted."""
        if self._found:
            raise problems_error(self._found)
