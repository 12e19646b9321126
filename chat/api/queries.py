"""Query strings of lists and of streams that are picked up again. Bad values are refused like fields of a body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import boolean_read, echo, field_error, integer_read, refuse
from chat.errors import ApiError

MAX_LIMIT = 100


def query_boolean(request: HttpRequest, name: str) -> bool:
    """False where it is absent; raises ApiError."""
    value = request.GET.get(name)
    try:
        return value is not None and boolean_read(value)
    except ValidationError as error:
        raise field_error(name, error) from None


def query_integer(request: HttpRequest, name: str, default: int, *, minimum: int = -1, maximum: int = 2**53) -> int:
    """Raises ApiError for what is no number from `minimum` to `maximum`."""
    value = request.GET.get(name)
    return default if value is None else integer_check(name, value, minimum=minimum, maximum=maximum)


def integer_check(name: str, value: str, *, minimum: int, maximum: int) -> int:
    try:
        number = integer_read(value)
        if not minimum <= number <= maximum:
            raise refuse("invalid_value", f"must be from {minimum} to {maximum}, got {number}")
    except ValidationError as error:
        raise field_error(name, error) from None
    return number


@dataclass(frozen=True, slots=True)
class Page:
    """What of a list is asked for: `limit` entries behind the one of id `after`."""

    after: str
    limit: int
    is_ascending: bool

    def listed(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """The page of `entries`, which are all there are, in the order asked for; raises ApiError where `after` is none of them."""
        begin = 0
        if self.after:
            begin = next((index + 1 for index, entry in enumerate(entries) if entry["id"] == self.after), -1)
        if begin < 0:
            raise after_unknown(self.after)
        return list_object(entries[begin : begin + self.limit], has_more=len(entries) > begin + self.limit)


def after_unknown(after: str) -> ApiError:
    return ApiError("invalid_value", f"after must be the id of an entry of this list, got {echo(after)}", "after")


def page_read(request: HttpRequest, *, default_order: str = "asc") -> Page:
    """`after`, `limit` and `order` of a request; raises ApiError."""
    order = request.GET.get("order", default_order)
    if order not in ("asc", "desc"):
        raise ApiError("invalid_value", f"order must be asc or desc, got {echo(order)}", "order")
    limit = query_integer(request, "limit", 20, minimum=1, maximum=MAX_LIMIT)
    return Page(request.GET.get("after", ""), limit, order == "asc")


def list_object(entries: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A list as OpenAI's clients page through it."""
    return {
        "object": "list",
        "data": entries,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
        "has_more": has_more,
    }
