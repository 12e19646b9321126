"""Reads of the sums: the totals of a span, its periods, and its groups by one dimension."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import ExpressionWrapper, F, IntegerField, QuerySet, Sum

from chat.usage.measures import COLUMNS, percentile
from chat.usage.models import (
    AMOUNTS,
    DAY,
    GAP_BOUNDS_MS,
    GAP_COLUMNS,
    HOUR,
    MEASURES,
    TTFT_BOUNDS_MS,
    TTFT_COLUMNS,
    Dimension,
)
from chat.usage.scope import UsageScope
from chat.usage.spans import Piece, Span

ORG = "org"
"""A further group: by organisation, which every sum has."""
MOST_GROUPS = 50
CHARTED = ("num_requests", "prompt_tokens", "completion_tokens", "cost_nanos")
"""What charts show by group."""
_MEASURES = frozenset(MEASURES)


class Figures(dict[str, int]):
    """Sums by measure, 0 for those that are not given."""

    def __missing__(self, name: str) -> int:
        return 0

    def add(self, amounts: Mapping[str, Any]) -> None:
        for name, amount in amounts.items():
            if amount and name in _MEASURES:
                self[name] += amount

    @property
    def num_answered(self) -> int:
        """Return the number of requests that were answered without an error."""
        return self["num_requests"] - self["num_theirs"] - self["num_ours"] - self["num_left"]

    @property
    def num_ended(self) -> int:
        """Return the number of requests whose clients stayed, of which errors are a share."""
        return self["num_requests"] - self["num_left"]

    def ttft_ms(self, share: float) -> float | None:
        """Return a percentile of the time to the first token."""
        return percentile([self[name] for name in TTFT_COLUMNS], TTFT_BOUNDS_MS, share)

    def gap_ms(self, share: float) -> float | None:
        """Return a percentile, over runs, of the mean time between two tokens."""
        return percentile([self[name] for name in GAP_COLUMNS], GAP_BOUNDS_MS, share)


@dataclass(frozen=True, slots=True)
class Asked:
    """What of the usage is asked for."""

    span: Span
    group: str = ""
    """A Dimension, ORG, or empty."""
    filters: Mapping[str, Any] = field(default_factory=dict)
    """Values by dimension."""


class UsageReader:
    """Reads what a person sees of the usage."""

    def __init__(self, scope: UsageScope, asked: Asked) -> None:
        self._scope = scope
        self.asked = asked

    def total(self, span: Span) -> Figures:
        """Return the sums of a span."""
        rows, _ = self._rows("")
        total = Figures()
        for piece in span.pieces():
            total.add(_of(rows, piece).aggregate(**_sums(MEASURES)))
        return total

    def points(self, span: Span) -> dict[int, Figures]:
        """Return the sums of each period that has any, by its number."""
        rows, _ = self._rows("")
        found: dict[int, Figures] = defaultdict(Figures)
        for row in self._by_period(rows, span, MEASURES):
            found[row["period"]].add(row)
        return found

    def groups(self, span: Span, *, every_histogram: bool = False) -> list[tuple[Any, Figures]]:
        """Return each value of the group and its sums, most requests first.

        The first MOST_GROUPS have histograms, or all of them.
        """
        rows, column = self._rows(self.asked.group)
        found = self._grouped(rows, column, span, MEASURES if every_histogram else AMOUNTS)
        ordered = sorted(found.items(), key=lambda item: (-item[1]["num_requests"], str(item[0])))
        first = [] if every_histogram else [value for value, _ in ordered[:MOST_GROUPS]]
        shown = rows.filter(**{f"{column}__in": first})
        if first:
            for value, figures in self._grouped(shown, column, span, (*TTFT_COLUMNS, *GAP_COLUMNS)).items():
                found[value].add(figures)
        return [(value, figures) for value, figures in ordered if figures["num_requests"]]

    def groups_of(self, span: Span, values: Collection[Any]) -> dict[Any, Figures]:
        """Return the sums of some values of the group, without histograms."""
        rows, column = self._rows(self.asked.group)
        return self._grouped(rows.filter(**{f"{column}__in": list(values)}), column, span, AMOUNTS)

    def points_of(self, span: Span, values: Collection[Any]) -> dict[tuple[int, Any], Figures]:
        """Return the charted sums of some values of the group by the number of each period."""
        rows, column = self._rows(self.asked.group)
        found: dict[tuple[int, Any], Figures] = defaultdict(Figures)
        some = rows.filter(**{f"{column}__in": list(values)})
        for row in self._by_period(some, span, CHARTED, group=F(column)):
            found[row["period"], row["group"]].add(row)
        return found

    def every_point(self, span: Span) -> list[tuple[int, Any, Figures]]:
        """Return the sums of each period and value of the group, in this order."""
        rows, column = self._rows(self.asked.group)
        more = {"group": F(column)} if column else {}
        found: dict[tuple[int, Any], Figures] = defaultdict(Figures)
        for row in self._by_period(rows, span, MEASURES, **more):
            found[row["period"], row.get("group", "")].add(row)
        ordered = sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
        return [(period, value, figures) for (period, value), figures in ordered if figures["num_requests"]]

    def _rows(self, group: str) -> tuple[QuerySet[Any], str]:
        """Return the sums to read, and the column of the group in them."""
        found = self._totals(group)
        if found is not None:
            return found, "org_id" if group == ORG else "value" if group else ""
        filters = {COLUMNS[dimension]: value for dimension, value in self.asked.filters.items()}
        return self._scope.sums.filter(**filters), "org_id" if group == ORG else COLUMNS.get(group, "")

    def _totals(self, group: str) -> QuerySet[Any] | None:
        """Return totals by one dimension if they answer."""
        totals, filters = self._scope.totals, self.asked.filters
        if totals is None or len(filters) > 1:
            return None
        if not filters:
            return totals.filter(dimension=Dimension.ALL if group in ("", ORG) else group)
        ((dimension, value),) = filters.items()
        return totals.filter(dimension=dimension, value=str(value)) if group in ("", ORG, dimension) else None

    def _grouped(self, rows: QuerySet[Any], column: str, span: Span, measures: Collection[str]) -> dict[Any, Figures]:
        found: dict[Any, Figures] = defaultdict(Figures)
        for piece in span.pieces():
            for row in _of(rows, piece).order_by().values(group=F(column)).annotate(**_sums(measures)):
                found[row["group"]].add(row)
        return found

    def _by_period(
        self, rows: QuerySet[Any], span: Span, measures: Collection[str], **more: Any
    ) -> Iterator[dict[str, Any]]:
        length_h = DAY if span.has_days_of_utc else HOUR
        for stretch in span.stretches():
            period: Any = F("start_h")
            if span.length_h == DAY:
                period = ExpressionWrapper((period + stretch.ahead_h) / DAY, output_field=IntegerField())
            some = _of(rows, Piece(length_h, stretch.start_h, stretch.end_h)).order_by()
            yield from some.values(period=period, **more).annotate(**_sums(measures))


def _of(rows: QuerySet[Any], piece: Piece) -> QuerySet[Any]:
    return rows.filter(length_h=piece.length_h, start_h__gte=piece.start_h, start_h__lt=piece.end_h)


def _sums(measures: Collection[str]) -> dict[str, Any]:
    return {name: Sum(name) for name in measures}
