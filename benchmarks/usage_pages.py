"""Fill the sums of a year and time the console's page of usage, on the database of DATABASE_URL or on SQLite.

    python -m benchmarks.usage_pages [--rows 1000000] [--postgres]

A year has that many sums by day: 365 days of combinations of key, person, model, route and status, of 4 organisations,
40 projects, 400 keys and 250 people. Of the last 31 days there are sums by hour as well. `--postgres` starts a
server of its own. The database is made by the benchmark, and dropped.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPEATS = 7
NUM_DAYS, HOURLY_DAYS = 365, 31
MODELS = [f"model-{number}" for number in range(12)]
ROUTES = ["/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/v1/responses"]
STATUSES = ("answered", "left", "theirs", "ours")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000, help="sums by day")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL and use that")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _database(options.postgres) as url:
        os.environ["LIGHTCONE_DATA_DIR"] = folder
        os.environ["LIGHTCONE_ALLOWED_HOSTS"] = "testserver"
        os.environ["LIGHTCONE_LOG_LEVEL"] = "ERROR"
        os.environ["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
        if url:
            os.environ["DATABASE_URL"] = url
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        _measure(options.rows)
        from django.db import connections

        connections.close_all()


@contextmanager
def _database(is_postgres: bool) -> Iterator[str]:
    """Run a PostgreSQL on a private socket and yield its address; empty: the database that the environment says."""
    if not is_postgres:
        yield ""
        return
    folder = Path(tempfile.mkdtemp(prefix="lc-pg-", dir="/tmp"))  # noqa: S108  (a socket's path must be short)
    folder.chmod(0o755)
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, **user)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **user}
    data = str(folder / "data")
    subprocess.run([binaries / "initdb", "-D", data, "-U", "light", "-A", "trust", "-E", "UTF8"], check=True, **quiet)
    server = subprocess.Popen([binaries / "postgres", "-D", data, "-k", str(folder), "-h", ""], **quiet)
    try:
        create = [binaries / "createdb", "-h", str(folder), "-U", "light", "light"]
        for _ in range(300):
            if subprocess.run(create, check=False, **quiet).returncode == 0:
                break
            time.sleep(0.1)
        yield f"postgres://light@/light?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)  # a milder signal waits for connections of the pool
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(num_rows: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from chat.models import UsageSum, UsageTotal

    started = time.perf_counter()
    _fill(num_rows)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE chat_usagesum")
            cursor.execute("VACUUM ANALYZE chat_usagetotal")
    by_day = UsageSum.objects.filter(length_h=24).count()
    print(
        f"{connection.vendor}: {by_day:,} sums by day, {UsageSum.objects.count():,} in all, "
        f"{UsageTotal.objects.count():,} totals, filled in {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    client = Client()
    client.force_login(User.objects.create_superuser(f"root-{time.time_ns()}"))
    year = {"span": "365d", "zone": "UTC"}
    for name, query in {
        "the year": year,
        **{f"the year by {group}": year | {"group": group} for group in ("project", "key", "user", "model", "status")},
        "the year of Berlin": year | {"zone": "Europe/Berlin"},
        "the year of Berlin by key": year | {"zone": "Europe/Berlin", "group": "key"},
        "the year of a key": year | {"key": "key00007"},
        "the year of a key by model": year | {"key": "key00007", "group": "model"},
        "the year of a project by key": year | {"project": "7", "group": "key"},
        "the year of a model by key": year | {"model": MODELS[3], "group": "key"},
        "30 days by key": {"span": "30d", "zone": "UTC", "group": "key"},
        "7 days by hour": {"span": "7d", "zone": "Europe/Berlin", "period": "hour"},
        "the overview, 30 days": None,
    }.items():
        _time(client, name, query)


def _fill(num_rows: int) -> None:
    """Add facts by day, of the last days by hour, and the totals that they make."""
    from django.utils import timezone

    from chat.usage.measures import hour_of, totals_of
    from chat.usage.models import DAY, HOUR
    from chat.usage.sums import sums_store

    draw = random.Random(1)  # noqa: S311  (no secret)
    today = hour_of(timezone.now()) // DAY * DAY
    places = _places(draw, -(-num_rows // NUM_DAYS))
    for number in range(NUM_DAYS):
        start = today - (NUM_DAYS - 1 - number) * DAY
        facts: dict[tuple[Any, ...], Counter[str]] = {}
        for place in places:
            facts[DAY, start, *place] = _amounts(draw, place[-1])
            if number >= NUM_DAYS - HOURLY_DAYS:
                facts[HOUR, start + draw.randrange(24), *place] = _amounts(draw, place[-1])
        sums_store(facts, totals_of(facts))


def _places(draw: random.Random, number: int) -> list[tuple[Any, ...]]:
    """Return distinct combinations of organisation, project, key, person, model, route and status."""
    found: set[tuple[Any, ...]] = set()
    while len(found) < number:
        key = int(400 * draw.random() ** 2)
        project, person = key % 40, draw.choice((key % 250, (key * 7) % 250))
        status = draw.choices(STATUSES, (70, 10, 12, 8))[0]
        where = (project % 4 + 1, project + 1, f"key{key:05}", person)
        found.add((*where, draw.choice(MODELS), draw.choice(ROUTES), status))
    return sorted(found)


def _amounts(draw: random.Random, status: str) -> Counter[str]:
    number = draw.randrange(1, 200)
    tokens = number * draw.randrange(100, 2000)
    amounts = Counter(num_requests=number, prompt_tokens=tokens, cached_tokens=tokens // 3, cost_nanos=tokens * 150)
    amounts.update(completion_tokens=tokens // 4, reasoning_tokens=tokens // 9, duration_ms=number * 900)
    amounts.update({"ttft_le_200": number // 2, "ttft_le_350": number - number // 2, "gap_le_20": number})
    if status != "answered":
        amounts[f"num_{status}"] = number
    return amounts


def _time(client: Any, name: str, query: dict[str, str] | None) -> None:
    """Time a page, and the processor time of it, which others at work on the machine change less."""
    address = "/admin/?span=30d" if query is None else "/admin/usage/"
    times, worked = [], []
    for _ in range(REPEATS):
        started, cpu = time.perf_counter(), time.process_time()
        answer = client.get(address, query)
        times.append((time.perf_counter() - started) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
        assert answer.status_code == 200, answer
    medians = (statistics.median(times), statistics.median(worked))
    print(f"  {name}: median {medians[0]:.0f} ms, of the processor {medians[1]:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
