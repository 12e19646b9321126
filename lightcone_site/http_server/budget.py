"""Bytes that many share, so that no number of them fills the memory."""

from __future__ import annotations

from collections.abc import Callable

from chat.errors import ApiError

LARGE_BYTES = 2**20
"""What is made of a body of this size is worth giving back to the system."""


class BodiesBudget:
    """Of bodies that have begun to come and were not answered yet; of one owner at most half of it, so that others find room.

    `on_large_end` is called at the end of each large one.
    """

    def __init__(self, total: int, on_large_end: Callable[[], None] = lambda: None) -> None:
        self.total = total
        self._on_large_end = on_large_end
        self.share = max(1, total // 2)
        self.num_taken = 0
        self._by_owner: dict[str, int] = {}

    def take(self, owner: str, num_bytes: int) -> None:
        """Raises ApiError where there is no room."""
        taken = self._by_owner.get(owner, 0)
        if num_bytes > self.share:
            raise ApiError("request_too_large", f"The request body is larger than the limit of {self.share} bytes.")
        if taken + num_bytes > self.share:
            message = (
                f"Your requests that are not answered yet have bodies of {taken} bytes; with this one they would have more than "
                f"{self.share}. Please wait for some to be answered, or send less at once."
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
    """What one body has taken of the budget; `give_back` as often as one likes."""

    def __init__(self, budget: BodiesBudget, owner: str) -> None:
        self._budget, self._owner = budget, owner
        self._num_taken = 0

    def grow_to(self, num_bytes: int) -> None:
        """Raises ApiError where there is no room."""
        if num_bytes > self._num_taken:
            self._budget.take(self._owner, num_bytes - self._num_taken)
            self._num_taken = num_bytes

    def give_back(self) -> None:
        if self._num_taken:
            self._budget.give_back(self._owner, self._num_taken)
            self._num_taken = 0
