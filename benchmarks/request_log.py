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
COLUMNS = (
    *("run_id", "arrived_at", "org_id", "project_id", "key_public_id", "account_id", "dialect", "route", "is_stream"),
    *("model_asked", "model", "status", "outcome", "finish_reason", "error_code", "error_message", "parameters"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "queue_ms", "ttft_ms", "duration_ms", "cost_nanos"),
    *("attempts", "worker", "client_request_id", "user_label", "user_agent", "address", "metadata", "batch_id"),
    *("retry_count", "patience_s"),
)


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


def _row(number: int, num_rows: int, is_sqlite: bool) -> tuple[Any, ...]:
    at_s = FIRST.timestamp() + SPAN_S * number / num_rows
    run_id = f"{int(at_s * 1000):012x}7{number % 4096:03x}8{number % 10**15:015x}"
    is_rare, is_bad = number % RARE == 7, number % RARE == 3
    org = 2 if is_rare else 1 + 2 * (number % 5)
    at = datetime.fromtimestamp(at_s, UTC)
    return (
        run_id if is_sqlite else f"{run_id[:8]}-{run_id[8:12]}-{run_id[12:16]}-{run_id[16:20]}-{run_id[20:]}",
        at.strftime("%Y-%m-%d %H:%M:%S.%f") if is_sqlite else at,
        org,
        org * 10 + number % 3,
        "rare00000001" if is_rare else f"key{number % 97:09d}",
        7 if is_rare else (number % 50 + 100 if number % 4 == 0 else None),
        "lightcone",
        "/v1/chat/completions",
        True,
        "small",
        "rare" if is_rare else ("small", "large", "tiny")[number % 3],
        500 if is_bad else 200,
        "failed" if is_bad else "finished",
        "stop",
        "engine_error" if is_bad else "",
        "",
        '{"temperature": 0.7}',
        100 + number % 1000,
        50,
        number % 700,
        5.0,
        100.0 + number % 50,
        900_000.0 if number % (100 * RARE) == 11 else 500.0 + number % 4000,
        12_345,
        1,
        "model@here~1",
        f"req-{number:09d}",
        f"user-{number % 2000}",
        "python-httpx/0.28",
        "192.0.2.1",
        "{}",
        "batch_9" if number % (10 * RARE) == 5 else "",
        0,
        None,
    )


def _fill(num_rows: int) -> None:
    """Insert the rows without their indexes, and make these afterwards, which takes a third of the time."""
    from django.db import connection

    from chat.models import RequestLog

    is_sqlite = connection.vendor == "sqlite"
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    with connection.schema_editor() as editor:
        for index in RequestLog._meta.indexes:
            editor.remove_index(RequestLog, index)
    for begin in range(0, num_rows, AT_ONCE):
        rows = (_row(number, num_rows, is_sqlite) for number in range(begin, min(num_rows, begin + AT_ONCE)))
        connection.ensure_connection()
        raw: Any = connection.connection
        if is_sqlite:
            marks = ", ".join("?" for _ in COLUMNS)
            raw.execute("BEGIN")
            raw.executemany(f"INSERT INTO chat_requestlog ({names}) VALUES ({marks})", rows)  # noqa: S608
            raw.execute("COMMIT")
        else:
            with raw.cursor() as cursor, cursor.copy(f"COPY chat_requestlog ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
    with connection.schema_editor() as editor:
        for index in RequestLog._meta.indexes:
            editor.add_index(RequestLog, index)
    if not is_sqlite:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE chat_requestlog")


def _measure(num_rows: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from chat.models import Membership, Org, RequestLog

    started = time.perf_counter()
    _fill(num_rows)
    print(f"{connection.vendor}: {num_rows} rows, filled in {time.perf_counter() - started:.0f} s", flush=True)
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
