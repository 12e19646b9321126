"""Fill the audit log and time its page in the console: the list, each filter, an export.

    python -m benchmarks.audit_pages [--entries 100000]

The database is that of DATABASE_URL, or a new one of SQLite in a temporary folder. An hour has 20 entries; one of 200
people or keys acts on one of 500 objects, the first ones far more often than the last.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

REPEATS, AT_ONCE = 7, 5000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(minutes=3)
ACTIONS = (
    "key.change",
    "model.load",
    "model.change",
    "user.sign_in",
    "user.sign_in_failed",
    "file.delete",
    "job.cancel",
)
WEIGHTS = (200, 200, 100, 400, 80, 19, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=100_000)
    num_entries = parser.parse_args().entries
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIGHTCONE_DATA_DIR"] = folder
        os.environ["LIGHTCONE_ALLOWED_HOSTS"] = "testserver"
        os.environ["LIGHTCONE_LOG_LEVEL"] = "ERROR"
        os.environ["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        _measure(num_entries)


def _measure(num_entries: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from chat.models import AuditEntry

    started = time.perf_counter()
    _fill(num_entries)
    print(f"{connection.vendor}: {num_entries} entries, filled in {time.perf_counter() - started:.0f} s")
    client = Client()
    client.force_login(User.objects.create_superuser(f"root-{time.time_ns()}"))
    middle = (FIRST + STEP * (num_entries // 2)).date()
    rare = AuditEntry.objects.order_by("pk").first()
    assert rare is not None
    for name, query in {
        "the list": {},
        "a page in the middle": {"before": str(rare.pk + num_entries // 2)},
        "a common actor": {"actor": "actor-0"},
        "a rare actor": {"actor": "actor-199"},
        "no such actor": {"actor": "actor-999"},
        "an actor by id": {"actor": "user:7"},
        "a common act": {"action": "user.sign_in"},
        "a rare act": {"action": "job.cancel"},
        "an act that nobody did": {"action": "alias.delete"},
        "a kind": {"kind": "job"},
        "an object by name": {"object": "object-499"},
        "an object by id": {"object": "model:3"},
        "one day": {"from": str(middle), "until": str(middle)},
        "from the first day": {"from": str(FIRST.date())},
        "until the first day": {"until": str(FIRST.date())},
        "days before all": {"until": "2020-01-01"},
        "a rare actor, a rare act, one month": {"actor": "actor-199", "action": "job.cancel", "from": str(middle)},
    }.items():
        _time(client, name, query)
    _export(client)


def _fill(num_entries: int) -> None:
    from chat.models import AuditEntry

    draw = random.Random(1)  # noqa: S311  (no secret)
    for begin in range(0, num_entries, AT_ONCE):
        numbers = range(begin, min(num_entries, begin + AT_ONCE))
        AuditEntry.objects.bulk_create(_entry(draw, FIRST + STEP * number) for number in numbers)


def _entry(draw: random.Random, at: datetime) -> Any:
    from chat.models import AuditEntry

    (action,) = draw.choices(ACTIONS, WEIGHTS)
    actor, thing = (int(number * draw.random() ** 3) for number in (200, 500))
    return AuditEntry(
        at=at,
        actor_kind="key" if actor % 4 == 0 else "user",
        actor_id=str(actor),
        actor_name=f"actor-{actor}",
        address="192.0.2.1",
        source="console",
        request_id=f"{draw.getrandbits(128):032x}",
        action=action,
        object_kind=action.partition(".")[0],
        object_id=str(thing),
        object_name=f"object-{thing}",
        before={"name": "before", "rights": ["inference"]},
        after={"name": "after", "rights": ["inference", "keys_manage"]},
    )


def _time(client: Any, name: str, query: dict[str, str]) -> None:
    """Time a page, and the processor time of it, which others at work on the machine change less."""
    times, worked = [], []
    for _ in range(REPEATS):
        started, cpu = time.perf_counter(), time.process_time()
        answer = client.get("/admin/chat/auditentry/", query)
        times.append((time.perf_counter() - started) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
        assert answer.status_code == 200, answer
    num_rows = answer.text.count("data-row")
    medians = (statistics.median(times), statistics.median(worked))
    print(f"  {name}: median {medians[0]:.0f} ms, of the processor {medians[1]:.0f} ms, {num_rows} rows", flush=True)


def _export(client: Any) -> None:
    """Time the whole log as a file, then measure what its writing takes of Python's memory."""
    for format_name in ("csv", "jsonl"):
        started, cpu = time.perf_counter(), time.process_time()
        num_bytes = asyncio.run(_read(client.get(f"/admin/chat/auditentry/export.{format_name}")))
        took_s, worked_s = time.perf_counter() - started, time.process_time() - cpu
        tracemalloc.start()
        asyncio.run(_read(client.get(f"/admin/chat/auditentry/export.{format_name}"), most=5_000_000))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"  {format_name}: {num_bytes / 1e6:.0f} MB in {took_s:.0f} s, of the processor {worked_s:.0f} s; "
            f"at most {peak / 1e6:.1f} MB of memory in the first 5 MB",
            flush=True,
        )


async def _read(answer: Any, most: int = 2**62) -> int:
    num_bytes = 0
    async for piece in answer.streaming_content:
        num_bytes += len(piece)
        if num_bytes > most:
            break
    return num_bytes


if __name__ == "__main__":
    main()
