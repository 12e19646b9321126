"""The filters of the request log.

A filter has the columns that an index serves (`columns`), the bounds of ids (`bounds`) and all else as a condition that
no index serves (`queryset`), as `chat.usage.log_search` wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from django.contrib.auth import get_user_model
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from chat.access.models import ServiceAccount
from chat.access.people import people_seen
from chat.access.selectors import projects_seen
from chat.console.filters import InstantFilter, NamedFilter, NumberFilter, TableFilter
from chat.relay.state.keys import run_id_floor
from chat.usage.column_filters import KeyFilter, ModelFilter, ProjectFilter
from chat.usage.log_scope import unindexed
from chat.usage.models import RequestLog
from engine.api import Outcome

SPANS = {
    "1h": (_("last hour"), 1),
    "24h": (_("last 24 hours"), 24),
    "7d": (_("last 7 days"), 168),
    "30d": (_("last 30 days"), 720),
}
OUTCOMES = {
    Outcome.FINISHED: _("finished"),
    Outcome.STOPPED: _("stopped"),
    Outcome.DISCONNECTED: _("disconnected"),
    Outcome.INTERRUPTED: _("interrupted"),
    Outcome.TIMED_OUT: _("timed out"),
    Outcome.REJECTED: _("rejected"),
    Outcome.FAILED: _("failed"),
    Outcome.WORKER_LOST: _("worker lost"),
}
STATUSES = (200, 400, 401, 403, 404, 408, 413, 429, 499, 500, 503)
DIALECTS = ("lightcone", "prompts", "messages", "responses", "ollama", "scale", "playground")

Logs: TypeAlias = QuerySet[RequestLog]


class IndexedFilter:
    """A filter of one column that an index serves."""

    column: str

    def columns(self) -> Mapping[str, Any]:
        return {self.column: self.value()} if self.shown() else {}  # type: ignore[attr-defined]  # a filter has both

    def queryset(self, request: HttpRequest, queryset: Logs) -> Logs:
        return unindexed(queryset, **self.columns())


class BoundsFilter:
    """A filter of instants: a range of run ids, which begin with their time."""

    def bounds(self) -> Q:
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: Logs) -> Logs:
        return queryset


class SpanFilter(BoundsFilter, TableFilter):
    title = _("time")
    parameter_name = "span"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(value, label) for value, (label, _hours) in SPANS.items()]

    def bounds(self) -> Q:
        if self.value() not in SPANS:
            return Q()
        return Q(pk__gte=run_id_floor(timezone.now() - timedelta(hours=SPANS[self.value() or ""][1])))


class FromFilter(BoundsFilter, InstantFilter):
    title = _("From (UTC)")
    parameter_name = "from"

    def bounds(self) -> Q:
        start = self.instant()
        return Q(pk__gte=run_id_floor(start)) if start else Q()


class UntilFilter(BoundsFilter, InstantFilter):
    title = _("Until (UTC)")
    parameter_name = "until"

    def bounds(self) -> Q:
        end = self.instant()
        return Q(pk__lt=run_id_floor(end)) if end else Q()


class OutcomeFilter(IndexedFilter, TableFilter):
    title = _("outcome")
    parameter_name = column = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(outcome.value, OUTCOMES[outcome]) for outcome in Outcome]


class StatusFilter(IndexedFilter, TableFilter):
    title = _("status")
    parameter_name = column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(status), str(status)) for status in STATUSES]


class LogModelFilter(IndexedFilter, ModelFilter):
    title = _("model")


class LogKeyFilter(IndexedFilter, KeyFilter):
    title = _("API key")


class LogProjectFilter(IndexedFilter, ProjectFilter):
    title = _("project")


class AccountFilter(IndexedFilter, NamedFilter):
    """A filter by the person who chatted or whose key it is, or the service account: a name, or an id as `#7`."""

    title = _("Person")
    parameter_name = "account"
    column = "account_id"
    help_text = _("A user name, or # and the id of a deleted account. Chats and personal keys.")

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        self._account_id = self._found(request.user)

    def columns(self) -> Mapping[str, Any]:
        return {} if self._account_id is None else {self.column: self._account_id}

    def shown(self) -> str:
        return "" if self._account_id is None else self.value() or ""

    def problem(self) -> str:
        if not self.value() or self._account_id is not None:
            return ""
        return gettext("Person: you see no account %(name)s; a deleted one is found by its id, such as #7.") % {
            "name": repr((self.value() or "")[:40])
        }

    def _found(self, user: Any) -> int | None:
        name = self.value() or ""
        digits = name.removeprefix("#")
        if name.startswith("#"):
            plain = digits.removeprefix("-")
            return int(digits) if plain.isascii() and plain.isdigit() and len(plain) < 19 else None
        if not name:
            return None
        if name == user.get_username():
            return int(user.pk)
        people = people_seen(actor=user, people=get_user_model().objects.filter(username=name))
        found: int | None = people.values_list("pk", flat=True).first()
        if found is None:
            program = ServiceAccount.objects.filter(name=name, project__in=projects_seen(user)).order_by("-pk").first()
            found = program and program.usage_id
        return found


class DialectFilter(TableFilter):
    title = _("dialect")
    parameter_name = column = "dialect"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in DIALECTS]


class RouteFilter(NamedFilter):
    title = _("Route")
    parameter_name = "route"
    help_text = _("The path of the request, such as /v1/chat/completions.")

    def queryset(self, request: HttpRequest, queryset: Logs) -> Logs:
        return queryset.filter(route=self.value()) if self.value() else queryset


class RangeFilter(NumberFilter):
    """A filter by one end of a range."""

    lookup: str

    def queryset(self, request: HttpRequest, queryset: Logs) -> Logs:
        number = self.number()
        if number is None:
            return queryset
        return queryset.alias(num_tokens=F("prompt_tokens") + F("completion_tokens")).filter(**{self.lookup: number})


class LatencyFromFilter(RangeFilter):
    title = _("Duration from (ms)")
    parameter_name = "min_ms"
    lookup = "duration_ms__gte"
    unit = "ms"


class LatencyUntilFilter(RangeFilter):
    title = _("Duration up to (ms)")
    parameter_name = "max_ms"
    lookup = "duration_ms__lte"
    unit = "ms"


class TokensFromFilter(RangeFilter):
    title = _("Tokens from")
    parameter_name = "min_tokens"
    lookup = "num_tokens__gte"


class TokensUntilFilter(RangeFilter):
    title = _("Tokens up to")
    parameter_name = "max_tokens"
    lookup = "num_tokens__lte"


LOG_FILTERS = (
    *(SpanFilter, FromFilter, UntilFilter, OutcomeFilter, StatusFilter, LogModelFilter, LogKeyFilter, LogProjectFilter),
    *(AccountFilter, DialectFilter, RouteFilter),
    *(LatencyFromFilter, LatencyUntilFilter, TokensFromFilter, TokensUntilFilter),
)
