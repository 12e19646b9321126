"""The memory that request bodies share, so that no number of them fills it."""

from __future__ import annotations

from collections.abc import Callable

from chat.errors import ApiError

LARGE_BYTES = 2**20
"""From this size on it pays to return the memory of a body to the system."""


class BodiesBudget:
    """The bytes of all bodies that have begun to arrive and are not answered yet.

    One owner has at most half of them.
    """

    def __init__(self, total: int, on_large_end: Callable[[], None] = lambda: None) -> None:
        self.total = total
        self.share = max(1, total // 2)
        self.num_taken = 0
        self._on_large_end = on_large_end
        self._by_owner: dict[str, int] = {}

    def take(self, owner: str, num_bytes: int) -> None:
        """Take bytes for an owner. Raises ApiError if there is no room."""
        taken = self._by_owner.get(owner, 0)
        if num_bytes > self.share:
            raise ApiError("request_too_large", f"The request body is larger than the limit of {self.share} bytes.")
        if taken + num_bytes > self.share:
            message = (
                f"Your requests that are not answered yet have bodies of {taken} bytes; with this one they would have "
                f"more than {self.share}. Please wait for some to be answered, or send less at once."
            )
            raise ApiError("rate_limit_exceeded", message)
        if self.num_taken + num_bytes > self.total:
            raise ApiError(
                "overloaded", "The server holds as many bytes of requests as it may; please try again shortly."
            )
        self.num_taken += num_bytes
        self._by_owner[owner] = taken + num_bytes

    def give_back(self, owner: str, num_bytes: int) -> None:
        self.num_taken -= num_bytes
        self._by_owner[owner] -= num_bytes
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        if num_bytes >= LARGE_BYTES:
            self._on_large_end()


class BodyRoom:
    """The bytes that one body has taken of the budget. `give_back` is idempotent."""

    def __init__(self, budget: BodiesBudget, owner: str) -> None:
        self._budget, self._owner = budget, owner
        self._num_taken = 0

    def grow_to(self, num_bytes: int) -> None:
        """Take what is missing to `num_bytes`. Raises ApiError if there is no room."""
        if num_bytes > self._num_taken:
            self._budget.take(self._owner, num_bytes - self._num_taken)
            self._num_taken = num_bytes

    def give_back(self) -> None:
        if self._num_taken:
            self._budget.give_back(self._owner, self._num_taken)
            self._num_taken = 0
