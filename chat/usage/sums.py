"""Writes of the sums: add amounts to them, and make them anew from the request log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db import connections, models, transaction
from django.db.models import Count, Q, Sum

from chat.audit.services import Subject, audit_record
from chat.relay.state.keys import run_id_floor
from chat.usage.measures import SUM_KEY, TOTAL_KEY, Key, Sums, hour_of, hours_of, totals_of, with_days
from chat.usage.models import DAY, MEASURES, RequestLog, UsageSum, UsageTotal

ROWS_AT_ONCE = 200
RUNS_AT_ONCE = 5000
SLACK = timedelta(hours=1)
"""By how much the time in a run id and that of its arrival may differ."""
UPSERT = "INSERT INTO {table} ({columns}) VALUES {rows} ON CONFLICT ({key}) DO UPDATE SET {sums}"


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that are read and written: those of today, or of a migration."""

    log: type[models.Model] = RequestLog
    sums: type[models.Model] = UsageSum
    totals: type[models.Model] = UsageTotal
    using: str = "default"


TODAY = Tables()


def sums_add(hours: Mapping[Key, Mapping[str, int]], tables: Tables = TODAY) -> None:
    """Add amounts by hour to all sums. Call it in the transaction of the rows that they come from."""
    both = with_days(hours)
    sums_store(both, totals_of(both), tables)


def sums_store(
    sums: Mapping[Key, Mapping[str, int]], totals: Mapping[Key, Mapping[str, int]], tables: Tables = TODAY
) -> None:
    """Add facts and totals of hours and days as they are given."""
    _add(tables.sums, SUM_KEY, sums, tables.using)
    _add(tables.totals, TOTAL_KEY, totals, tables.using)


def _add(table: type[models.Model], key: Sequence[str], sums: Mapping[Key, Mapping[str, int]], using: str) -> None:
    """Add amounts to rows, which are made where there are none. Rows go in the order of their keys: no deadlocks."""
    connection = connections[using]
    measures = [name for name in MEASURES if name in {column.name for column in table._meta.get_fields()}]
    quoted = {name: connection.ops.quote_name(name) for name in (*key, *measures)}
    name = connection.ops.quote_name(table._meta.db_table)
    row = f"({', '.join(['%s'] * len(quoted))})"
    added = ", ".join(f"{quoted[one]} = {name}.{quoted[one]} + excluded.{quoted[one]}" for one in measures)
    ordered = sorted(sums.items(), key=lambda item: item[0])
    with connection.cursor() as cursor:
        for begin in range(0, len(ordered), ROWS_AT_ONCE):
            some = ordered[begin : begin + ROWS_AT_ONCE]
            statement = UPSERT.format(
                table=name,
                columns=", ".join(quoted.values()),
                rows=", ".join([row] * len(some)),
                key=", ".join(quoted[one] for one in key),
                sums=added,
            )
            cursor.execute(
                statement,
                [value for values, amounts in some for value in (*values, *(amounts.get(one, 0) for one in measures))],
            )


def sums_fill(rows: models.QuerySet[Any], tables: Tables = TODAY) -> int:
    """Add all these rows of the request log to the sums, some at a time, and return their number."""
    num_rows, last = 0, None
    rows = rows.order_by("pk")
    while some := list((rows if last is None else rows.filter(pk__gt=last))[:RUNS_AT_ONCE]):
        sums_add(hours_of(some), tables)
        num_rows, last = num_rows + len(some), some[-1].pk
    return num_rows


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was made anew: requests, and the days and projects whose sums stay, as the log has lost requests of them."""

    num_requests: int
    kept: tuple[tuple[date, int], ...]


def usage_rebuild(*, first: date, last: date, trusts_log: bool = False) -> Rebuilt:
    """Make the sums of some days (UTC) anew from the request log, a transaction a day.

    The sums of a day and project that count more requests than the log has stay, as sums outlive the log.
    `trusts_log`: they do not.
    """
    num_requests, kept, done = 0, [], None
    try:
        for number in range((last - first).days + 1):
            day = first + timedelta(days=number)
            with transaction.atomic():
                num_of_day, stay = _day_rebuild(day, trusts_log)
            num_requests += num_of_day
            kept += [(day, project_id) for project_id in stay]
            done = day
    finally:  # one entry a run, also of one that breaks off
        if done is not None:
            after = {"from": first.isoformat(), "until": done.isoformat(), "number": num_requests}
            audit_record(action="usage.rebuild", on=Subject(), after=after)
    return Rebuilt(num_requests, tuple(kept))


def _day_rebuild(day: date, trusts_log: bool) -> tuple[int, list[int]]:
    _lock()
    begin = datetime.combine(day, time(), UTC)
    end, hour = begin + timedelta(days=1), hour_of(begin)
    ids = Q(run_id__gte=run_id_floor(begin - SLACK), run_id__lt=run_id_floor(end + SLACK))
    rows = RequestLog.objects.filter(ids, arrived_at__gte=begin, arrived_at__lt=end)
    sums = UsageSum.objects.filter(start_h__gte=hour, start_h__lt=hour + DAY)
    logged = dict(rows.order_by().values_list("project_id").annotate(Count("pk")))
    summed = sums.filter(length_h=DAY).values_list("project_id").annotate(Sum("num_requests"))
    stay = [] if trusts_log else sorted(one for one, number in summed if number > logged.get(one, 0))
    sums.exclude(project_id__in=stay).delete()
    UsageTotal.objects.filter(start_h__gte=hour, start_h__lt=hour + DAY).delete()
    sums_store({}, totals_of(_read(sums)))
    return sums_fill(rows.exclude(project_id__in=stay)), stay


def _read(rows: models.QuerySet[UsageSum]) -> Sums:
    """Return stored sums by key."""
    found: Sums = defaultdict(Counter)
    for row in rows:
        found[tuple(getattr(row, name) for name in SUM_KEY)].update({name: getattr(row, name) for name in MEASURES})
    return found


def _lock() -> None:
    """Let the writer wait until the transaction ends. On SQLite each transaction locks all writers out already."""
    connection = connections[TODAY.using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {UsageSum._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")
