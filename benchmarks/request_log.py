"""Fill the request log and time its pages in the console: the list, each filter, combinations, searches, a deletion.

    python -m benchmarks.request_log [--rows 5000000]

The database is that of DATABASE_URL, or a new one of SQLite in a temporary folder. Half a year of requests: the second
of ten organisations has a thousandth of them, the second of a hundred keys likewise, one in a thousand fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

REPEATS = 3
AT_ONCE = 100_000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SPAN_S = 180 * 86_400
RARE = 1000
"""One row in so many is of what is rare."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    num_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIGHTCONE_DATA_DIR"] = folder
        os.environ["LIGHTCONE_ALLOWED_HOSTS"] = "testserver"
        os.environ["LIGHTCONE_LOG_LEVEL"] = "ERROR"
        os.environ["LIGHTCONE_LOG_DAYS"] = "3650"
        os.environ["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        _measure(num_rows)


def _fill(num_rows: int) -> None:
    """Have the database make the rows without their indexes, and make these afterwards, which is many times faster."""
    from django.db import connection

    from chat.models import RequestLog

    is_sqlite = connection.vendor == "sqlite"
    with connection.schema_editor() as editor:
        for index in RequestLog._meta.indexes:
            editor.remove_index(RequestLog, index)
    values = _values(num_rows, is_sqlite)
    names = ", ".join(f'"{name}"' for name in values)
    for begin in range(0, num_rows, AT_ONCE):
        end = min(num_rows, begin + AT_ONCE) - 1
        numbers = f"generate_series({begin}, {end}) AS numbers(n)"
        head = ""
        if is_sqlite:
            head = f"WITH RECURSIVE numbers(n) AS (SELECT {begin} UNION ALL SELECT n + 1 FROM numbers WHERE n < {end}) "
            numbers = "numbers"
        made = f"SELECT {', '.join(values.values())} FROM {numbers}"  # noqa: S608
        with connection.cursor() as cursor:
            cursor.execute(f"{head}INSERT INTO chat_requestlog ({names}) {made}")  # noqa: S608
    with connection.schema_editor() as editor:
        for index in RequestLog._meta.indexes:
            editor.add_index(RequestLog, index)
    if not is_sqlite:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE chat_requestlog")


def _values(num_rows: int, is_sqlite: bool) -> dict[str, str]:
    """Return the expression of each column of row number `n`, by name."""
    step_ms = SPAN_S * 1000 / num_rows
    first_ms = int(FIRST.timestamp() * 1000)
    at_ms = f"{first_ms} + CAST(n * {step_ms} AS BIGINT)"
    if is_sqlite:
        run_id = f"printf('%012x7%03x8%015x', {at_ms}, n % 4096, n)"
        at = f"strftime('%Y-%m-%d %H:%M:%f', ({at_ms}) / 1000.0, 'unixepoch')"
        number = "printf('%09d', {})"
    else:
        run_id = (
            f"(lpad(to_hex({at_ms}), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || "
            "lpad(to_hex(n), 15, '0'))::uuid"
        )
        at = f"to_timestamp(({at_ms}) / 1000.0)"
        number = "lpad(({})::text, 9, '0')"
    is_rare, is_bad = f"n % {RARE} = 7", f"n % {RARE} = 3"
    org = f"CASE WHEN {is_rare} THEN 2 ELSE 1 + 2 * (n % 5) END"
    return {
        "run_id": run_id,
        "arrived_at": at,
        "org_id": org,
        "project_id": f"({org}) * 10 + n % 3",
        "key_public_id": f"CASE WHEN {is_rare} THEN 'rare00000001' ELSE 'key' || {number.format('n % 97')} END",
        "account_id": f"CASE WHEN {is_rare} THEN 7 WHEN n % 4 = 0 THEN n % 50 + 100 END",
        "dialect": "'lightcone'",
        "route": "'/v1/chat/completions'",
        "is_stream": "1" if is_sqlite else "true",
        "model_asked": "'small'",
        "model": f"CASE WHEN {is_rare} THEN 'rare' WHEN n % 3 = 0 THEN 'small' ELSE 'large' END",
        "status": f"CASE WHEN {is_bad} THEN 500 ELSE 200 END",
        "outcome": f"CASE WHEN {is_bad} THEN 'failed' ELSE 'finished' END",
        "finish_reason": "'stop'",
        "error_code": f"CASE WHEN {is_bad} THEN 'engine_error' ELSE '' END",
        "error_message": "''",
        "parameters": """'{"temperature": 0.7}'""",
        "prompt_tokens": "100 + n % 1000",
        "cached_tokens": "50",
        "completion_tokens": "n % 700",
        "queue_ms": "5",
        "ttft_ms": "100 + n % 50",
        "duration_ms": f"CASE WHEN n % {100 * RARE} = 11 THEN 900000 ELSE 500 + n % 4000 END",
        "cost_nanos": "12345",
        "attempts": "1",
        "worker": "'model@here~1'",
        "client_request_id": f"'req-' || {number.format('n')}",
        "user_label": "'user-' || (n % 2000)",
        "user_agent": "'python-httpx/0.28'",
        "address": "'192.0.2.1'",
        "metadata": "'{}'",
        "batch_id": f"CASE WHEN n % {10 * RARE} = 5 THEN 'batch_9' ELSE '' END",
        "retry_count": "0",
    }


def _measure(num_rows: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from chat.models import Membership, Org, RequestLog

    started = time.perf_counter()
    _fill(num_rows)
    print(
        f"{connection.vendor}: {num_rows} rows, filled and indexed in {time.perf_counter() - started:.0f} s", flush=True
    )
    known = set(Org.objects.values_list("pk", flat=True))
    Org.objects.bulk_create([Org(pk=pk, name=f"org {pk}") for pk in range(1, 11) if pk not in known])
    root = User.objects.create_superuser("root")
    mine = User.objects.create_user("mine", pk=7 if not User.objects.filter(pk=7).exists() else None)
    people = {"a superuser": root, "a member with few rows": mine}
    Membership.objects.create(user=mine, org_id=2, role="member")
    for name, role, org_ids in (
        ("a viewer of a large organisation", "viewer", [1]),
        ("a viewer of a rare organisation", "viewer", [2]),
        ("a viewer of two organisations", "viewer", [2, 3]),
    ):
        people[name] = User.objects.create_user(name.replace(" ", "-"))
        Membership.objects.bulk_create(Membership(user=people[name], org_id=pk, role=role) for pk in org_ids)
    newest = RequestLog.objects.order_by("-pk").values_list("pk", flat=True)
    middle = str(newest[min(num_rows // 2, 1_000_000)])
    day = f"{FIRST + timedelta(days=90):%Y-%m-%d}"
    queries: dict[str, dict[str, str]] = {
        "the list": {},
        "a page in the middle": {"before": middle},
        "a project": {"project": "11"},
        "a rare key": {"key": "rare00000001"},
        "a key": {"key": "key000000005"},
        "a rare model": {"model": "rare"},
        "a model": {"model": "large"},
        "a rare status": {"status": "500"},
        "a status that nothing has": {"status": "413"},
        "a person": {"account": "#104"},
        "a day": {"from": day, "until": f"{day}T23:59"},
        "a rare key that failed": {"key": "rare00000001", "status": "500"},
        "a model of another project": {"model": "rare", "project": "51"},
        "a common key and a common status": {"key": "key000000005", "status": "200"},
        "the slowest, one in 100,000": {"min_ms": "800000"},
        "the slowest of a model that failed": {"min_ms": "800000", "model": "large", "status": "500"},
        "more tokens than any": {"min_tokens": "900000"},
        "a route that nothing has": {"route": "/v1/none"},
        "a dialect of one month": {"dialect": "ollama", "from": "2026-03-01", "until": "2026-04-01"},
        "the beginning of an id": {"q": "req-00000012"},
        "the beginning of all ids": {"q": "req-"},
        "the beginning of a label": {"q": "user-1999"},
        "a batch": {"q": "batch_9"},
        "no such id": {"q": "nothing-like-it"},
    }
    slowest = 0.0
    for who, person in people.items():
        client = Client()
        client.force_login(person)
        chosen = queries if person in (root, mine) else {name: queries[name] for name in ("the list", "a rare status")}
        for name, query in chosen.items():
            slowest = max(slowest, _time(client, f"{who}: {name}", query))
    print(f"  slowest median: {slowest:.0f} ms")
    _delete(num_rows)


def _time(client: Any, name: str, query: dict[str, str]) -> float:
    """Time a page, and the processor time of it, which others at work on the machine change less."""
    times, worked = [], []
    for _ in range(REPEATS):
        started, cpu = time.perf_counter(), time.process_time()
        answer = client.get("/admin/chat/requestlog/", query)
        times.append((time.perf_counter() - started) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
        assert answer.status_code == 200, answer
    num_rows = answer.text.count("data-row")
    note = ", looked at the newest only" if "requests were looked at" in answer.text else ""
    median = statistics.median(times)
    figures = f"median {median:.0f} ms, first {times[0]:.0f} ms, of the processor {statistics.median(worked):.0f} ms"
    print(f"  {name}: {figures}, {num_rows} rows{note}", flush=True)
    return median


def _delete(num_rows: int) -> None:
    """Delete a fifth of the rows, at most 100,000, while another connection writes all the time."""
    from django.db import connection, connections

    from chat.models import RequestLog
    from chat.usage.retention import request_logs_prune

    number = min(100_000, num_rows // 5)
    waits: list[float] = []
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            started = time.perf_counter()
            RequestLog.objects.filter(pk=newest).update(attempts=2)
            waits.append((time.perf_counter() - started) * 1000)
            is_over.wait(0.01)
        connections.close_all()

    newest = RequestLog.objects.order_by("-pk").values_list("pk", flat=True)[0]
    writer = threading.Thread(target=write)
    writer.start()
    started = time.perf_counter()
    num_deleted = request_logs_prune(before=FIRST + timedelta(seconds=SPAN_S * number / num_rows))
    took_s = time.perf_counter() - started
    is_over.set()
    writer.join()
    waits.sort()
    print(
        f"  {connection.vendor}: {num_deleted} rows deleted in {took_s:.0f} s; {len(waits)} writes beside waited "
        f"{statistics.median(waits):.1f} ms, p99 {waits[int(len(waits) * 0.99)]:.0f} ms, at most {waits[-1]:.0f} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
