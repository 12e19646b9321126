"""The routes of usage and costs, from the sums that the console's page shows: whole hours and days (UTC)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from chat.access.roles import Act
from chat.api.queries import integer_check, query_integer
from chat.api.registry import counted_routes
from chat.api.request.fields import bad_value, echo
from chat.errors import ApiError
from chat.organization.frame import KEY, PROJECT, SERVICE_ACCOUNT, USER, Asked, Does, admin_view, id_read
from chat.usage.buckets import Buckets, buckets_read
from chat.usage.models import DAY, HOUR, UsageSum
from chat.usage.prices import NANOS
from chat.usage.scope import usage_scope

HOUR_S = 3_600
MAX_TIME = 2**33
MAX_VALUES = 100
MAX_ROWS = 10_000
"""A page ends with the bucket that has the last of so many results, even if more buckets were asked for."""
LENGTHS = {"1h": HOUR, "1d": DAY}
LIMITS = {HOUR: (24, 168), DAY: (7, 31)}
"""The usual number of buckets and the greatest, by their length."""
COST_LIMITS = {DAY: (7, 180)}
PAGE = "page_"
GROUPS = {"project_id": "project_id", "user_id": "account_id", "api_key_id": "key_public_id", "model": "model"}
"""The column of each group."""
COST_GROUPS = {**{name: GROUPS[name] for name in ("project_id", "user_id", "api_key_id")}, "line_item": "model"}
COMPUTED = ("embeddings", "embed", "rerank")
"""The last part of routes that compute without generating."""
HEARD = ("audio/transcriptions", "audio/translations")
"""The last part of routes that write down speech."""


def embedding_routes() -> list[str]:
    return _routes_ending(COMPUTED)


def transcription_routes() -> list[str]:
    return _routes_ending(HEARD)


def _routes_ending(ends: tuple[str, ...]) -> list[str]:
    """Return routes as the log has them: with and without the last slash."""
    routes = [route for route in counted_routes() if route.endswith(ends)]
    return [*routes, *(f"{route}/" for route in routes)]


def completions(asked: Asked) -> dict[str, Any]:
    """Return what was generated: every route but those of embeddings, reranking and speech; all make the whole."""
    others = embedding_routes() + transcription_routes()
    return _page(asked, _rows(asked).exclude(route__in=others), _completions_result, GROUPS, LIMITS)


def embeddings(asked: Asked) -> dict[str, Any]:
    return _page(asked, _rows(asked).filter(route__in=embedding_routes()), _embeddings_result, GROUPS, LIMITS)


def transcriptions(asked: Asked) -> dict[str, Any]:
    return _page(asked, _rows(asked).filter(route__in=transcription_routes()), _transcriptions_result, GROUPS, LIMITS)


def costs(asked: Asked) -> dict[str, Any]:
    return _page(asked, _rows(asked), _costs_result, COST_GROUPS, COST_LIMITS)


def _completions_result(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "object": "organization.usage.completions.result",
        "num_model_requests": row["num_requests"],
        "input_tokens": row["prompt_tokens"],
        "input_cached_tokens": row["cached_tokens"],
        "input_uncached_tokens": row["prompt_tokens"] - row["cached_tokens"],
        "output_tokens": row["completion_tokens"],
    }


def _embeddings_result(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "object": "organization.usage.embeddings.result",
        "num_model_requests": row["num_requests"],
        "input_tokens": row["prompt_tokens"],
    }


def _transcriptions_result(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "object": "organization.usage.audio_transcriptions.result",
        "num_model_requests": row["num_requests"],
        "seconds": round(row["audio_ms"] / 1000),
    }


def _costs_result(row: Mapping[str, Any]) -> dict[str, Any]:
    amount = {"value": row["cost_nanos"] / NANOS, "currency": settings.LIGHTCONE_CURRENCY.lower()}
    return {"object": "organization.costs.result", "amount": amount}


@dataclass(frozen=True, slots=True)
class _Page:
    """The buckets of an answer, and where the next page begins."""

    buckets: Buckets
    next_h: int | None


def _page(
    asked: Asked,
    rows: QuerySet[UsageSum],
    result: Callable[[Mapping[str, Any]], dict[str, Any]],
    groups: Mapping[str, str],
    limits: Mapping[int, tuple[int, int]],
) -> dict[str, Any]:
    page = _asked_page(asked, limits)
    names = _group_names(asked, groups)
    columns = [groups[name] for name in names]
    found, stop_h = buckets_read(rows, page.buckets, columns, most_rows=MAX_ROWS)
    next_h = page.next_h if stop_h == page.buckets.end_h else stop_h
    empty = dict.fromkeys(groups)

    def described(row: Mapping[str, Any]) -> dict[str, Any]:
        return result(row) | empty | {name: id_of(name, row[groups[name]]) for name in names}

    data = [
        {
            "object": "bucket",
            "start_time": start_h * HOUR_S,
            "end_time": (start_h + page.buckets.length_h) * HOUR_S,
            "results": [described(row) for row in found.get(start_h, [])],
        }
        for start_h in page.buckets.starts()
        if start_h < stop_h
    ]
    next_page = None if next_h is None else f"{PAGE}{next_h}"
    return {"object": "page", "data": data, "has_more": next_page is not None, "next_page": next_page}


def _asked_page(asked: Asked, limits: Mapping[int, tuple[int, int]]) -> _Page:
    sent = asked.request.GET
    width = sent.get("bucket_width", "1d")
    length_h = LENGTHS.get(width)
    if length_h is None or length_h not in limits:
        known = " or ".join(name for name, one in LENGTHS.items() if one in limits)
        raise bad_value("bucket_width", f"must be {known}, got {echo(width)}: usage is summed by hours and days")
    usual, most = limits[length_h]
    limit = query_integer(asked.request, "limit", usual, minimum=1, maximum=most)
    if "start_time" not in sent:
        raise ApiError("missing_required_parameter", "start_time is required: Unix seconds.", "start_time")
    start = integer_check("start_time", sent["start_time"], minimum=0, maximum=MAX_TIME)
    end = query_integer(asked.request, "end_time", int(time.time()) + 1, minimum=0, maximum=MAX_TIME)
    if end <= start:
        raise bad_value("end_time", f"must be after start_time, {start}, got {end}")
    first_h, end_h = start // HOUR_S // length_h * length_h, -(-end // HOUR_S // length_h) * length_h
    if (page := sent.get("page")) is not None:
        first_h = _page_start(page, Buckets(length_h, first_h, end_h))
    stop_h = min(end_h, first_h + limit * length_h)
    return _Page(Buckets(length_h, first_h, stop_h), stop_h if stop_h < end_h else None)


def _page_start(page: str, whole: Buckets) -> int:
    start_h = id_read(PAGE, page)
    if start_h is None or start_h not in whole.starts():
        raise bad_value("page", f"must be next_page of the page before, with the same parameters, got {echo(page)}")
    return start_h


def _group_names(asked: Asked, groups: Mapping[str, str]) -> list[str]:
    names = list(dict.fromkeys(asked.texts("group_by")))
    for name in names:
        if name not in groups:
            raise bad_value("group_by", f"must be some of {', '.join(groups)}, got {echo(name)}")
    return names


def _rows(asked: Asked) -> QuerySet[UsageSum]:
    """Return the sums that are asked for, of those that the person sees in the organisation."""
    rows = usage_scope(asked.person).sums.filter(org_id=asked.org.pk)
    for name, (column, read) in FILTERS.items():
        if texts := asked.texts(name):
            if len(texts) > MAX_VALUES:
                raise bad_value(name, f"must have at most {MAX_VALUES} values, got {len(texts)}")
            rows = rows.filter(**{f"{column}__in": [_value(name, text, read) for text in texts]})
    return rows


def _value(name: str, text: str, read: Callable[[str], Any]) -> Any:
    value = read(text)
    if value is None:
        raise bad_value(name, f"must be ids as lists give them, got {echo(text)}")
    return value


def _account_read(text: str) -> int | None:
    program = id_read(SERVICE_ACCOUNT, text)
    return id_read(USER, text) if program is None else -program


FILTERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "project_ids": ("project_id", lambda text: id_read(PROJECT, text)),
    "user_ids": ("account_id", _account_read),
    "api_key_ids": ("key_public_id", lambda text: text.removeprefix(KEY) if text.startswith(KEY) else None),
    "models": ("model", str),
    "line_items": ("model", str),
}
"""The column of each filter, and what reads its values."""


def id_of(name: str, value: Any) -> str | None:
    """Return the id of a value of a group; None for what had none, such as chats, which have no key."""
    if name == "project_id":
        return f"{PROJECT}{value}" if value else None
    if name == "api_key_id":
        return f"{KEY}{value}" if value else None
    if name == "user_id":
        return account_id_of(value)
    return str(value)


def account_id_of(number: int) -> str | None:
    """Return the id of the person or service account that a number of usage stands for."""
    if not number:
        return None
    return f"{USER}{number}" if number > 0 else f"{SERVICE_ACCOUNT}{-number}"


TIMES = (
    "start_time",
    "end_time",
    "bucket_width",
    "limit",
    "page",
    "group_by",
    "project_ids",
    "user_ids",
    "api_key_ids",
)
usage_completions = admin_view(get=Does(completions, Act.USAGE_SEE, query=(*TIMES, "models")))
usage_embeddings = admin_view(get=Does(embeddings, Act.USAGE_SEE, query=(*TIMES, "models")))
usage_transcriptions = admin_view(get=Does(transcriptions, Act.USAGE_SEE, query=(*TIMES, "models")))
organization_costs = admin_view(get=Does(costs, Act.USAGE_SEE, query=(*TIMES, "line_items")))
