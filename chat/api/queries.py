"""Read query strings of lists and of resumed streams. Bad values are refused like fields of a body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from chat.api.request.fields import bad_value, boolean_read, echo, field_read, integer_read
from chat.errors import ApiError

MAX_LIMIT = 100


def query_boolean(request: HttpRequest, name: str) -> bool:
    value = request.GET.get(name)
    return value is not None and field_read(name, boolean_read, value)


def query_integer(request: HttpRequest, name: str, default: int, *, minimum: int = -1, maximum: int = 2**53) -> int:
    value = request.GET.get(name)
    return default if value is None else integer_check(name, value, minimum=minimum, maximum=maximum)


def integer_check(name: str, value: str, *, minimum: int, maximum: int) -> int:
    number = field_read(name, integer_read, value)
    if not minimum <= number <= maximum:
        raise bad_value(name, f"must be from {minimum} to {maximum}, got {number}")
    return number


@dataclass(frozen=True, slots=True)
class Page:
    """The requested part of a list: `limit` entries behind the one with the id `after`."""

    after: str
    limit: int
    is_ascending: bool

    def listed(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the page of all `entries`, in the requested order. Raises ApiError if `after` is none of them."""
        begin = 0
        if self.after:
            begin = next((index + 1 for index, entry in enumerate(entries) if entry["id"] == self.after), -1)
        if begin < 0:
            raise after_unknown(self.after)
        return list_object(entries[begin : begin + self.limit], has_more=len(entries) > begin + self.limit)


def after_unknown(after: str) -> ApiError:
    return bad_value("after", f"must be the id of an entry of this list, got {echo(after)}")


def page_read(request: HttpRequest, *, default_order: str = "asc") -> Page:
    order = request.GET.get("order", default_order)
    if order not in ("asc", "desc"):
        raise bad_value("order", f"must be asc or desc, got {echo(order)}")
    limit = query_integer(request, "limit", 20, minimum=1, maximum=MAX_LIMIT)
    return Page(request.GET.get("after", ""), limit, order == "asc")


def list_object(entries: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a list as OpenAI's clients page through it."""
    return {
        "object": "list",
        "data": entries,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
        "has_more": has_more,
    }
