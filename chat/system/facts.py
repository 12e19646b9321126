"""The facts of the system page: database, Valkey, queues, processes and disk, each with what is wrong about it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from chat.catalog.models import ModelState, ServedModel
from chat.console.figures import number
from chat.relay.state.keys import Keys
from chat.relay.valkey import valkey_connect
from chat.usage.metrics import SystemState, system_state

GIB = 2**30
MIN_DISK_BYTES = GIB
FULL_SHARE = 0.8
"""Of Valkey's memory. Above it requests are refused (relay/state/admit.lua)."""
SLOW_S = 60.0
"""A queue or a usage record that is older is a problem."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the page. `problem`: what is wrong and what to do, empty if nothing is."""

    name: str
    value: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Stores:
    """What Valkey says."""

    state: SystemState
    version: str
    uptime_s: int
    policy: str
    num_clients: int
    queue_age_s: float
    """How long the oldest request has waited for a worker; 0 if none waits."""
    usage_age_s: float
    """How long the oldest record has waited to be written; 0 if none waits."""


def system_sections(*, is_brief: bool = False) -> list[Section]:
    """Return all facts. A store that does not answer is a fact, too.

    `is_brief`: without migrations, which take reading all their files.
    """
    stores, why = None, ""
    try:
        stores = async_to_sync(_stores_read)()
    except (redis.RedisError, OSError) as error:
        why = str(error)
    return [
        Section(_("Database"), tuple(_database_facts(is_brief))),
        Section("Valkey", tuple(_valkey_facts(stores, why))),
        Section(_("Queues"), tuple(_queue_facts(stores)) if stores else ()),
        Section(_("Models"), tuple(_model_facts(stores)) if stores else ()),
        Section(_("Disk"), tuple(_disk_facts())),
    ]


def problems_of(sections: list[Section]) -> list[Fact]:
    return [fact for section in sections for fact in section.facts if fact.problem]


def _database_facts(is_brief: bool) -> Iterator[Fact]:
    is_sqlite = connection.vendor == "sqlite"
    try:
        yield Fact(_("Kind"), "SQLite" if is_sqlite else "PostgreSQL")
        yield from _sqlite_facts() if is_sqlite else _postgres_facts()
        if is_brief:
            return
        executor = MigrationExecutor(connection)
        pending = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        todo = _("Restart Lightcone, which applies them.") if pending else ""
        yield Fact(_("Migrations to apply"), str(pending), todo)
    except DatabaseError as error:
        yield Fact(_("State"), _("does not answer"), str(error).strip())


def _sqlite_facts() -> Iterator[Fact]:
    path = Path(str(settings.DATABASES["default"]["NAME"]))
    yield Fact(_("Version"), _row("SELECT sqlite_version()"))
    yield Fact(_("Size"), filesizeformat(path.stat().st_size if path.exists() else 0))
    log = path.with_name(f"{path.name}-wal")
    yield Fact(_("Write-ahead log"), filesizeformat(log.stat().st_size if log.exists() else 0))


def _postgres_facts() -> Iterator[Fact]:
    yield Fact(_("Version"), _row("SHOW server_version"))
    yield Fact(_("Size"), filesizeformat(_row("SELECT pg_database_size(current_database())")))
    yield Fact(_("Connections"), _row("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"))
    waiting = int(_row("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    todo = _("Transactions wait for each other; look at pg_stat_activity.") if waiting else ""
    yield Fact(_("Locks that are waited for"), str(waiting), todo)


def _row(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0])


async def _stores_read() -> Stores:
    keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
    client: Any = valkey_connect(settings.LIGHTCONE_REDIS_URL, max_connections=2)
    try:
        state = await system_state(client, keys)
        about = await client.info("server")
        clients = await client.info("clients")
        memory = await client.info("memory")
        queued = await client.zrange(keys.queued, 0, 0, withscores=True)
        unwritten = await client.xrange(keys.usage, count=1)
    finally:
        await client.aclose()
    now_ms = time.time() * 1000
    return Stores(
        state=state,
        version=str(about.get("valkey_version") or about.get("redis_version", "")),
        uptime_s=int(about.get("uptime_in_seconds", 0)),
        policy=str(memory.get("maxmemory_policy", "")),
        num_clients=int(clients.get("connected_clients", 0)),
        queue_age_s=max(0.0, (now_ms - queued[0][1]) / 1000) if queued else 0.0,
        usage_age_s=max(0.0, (now_ms - int(unwritten[0][0].partition(b"-")[0])) / 1000) if unwritten else 0.0,
    )


def _valkey_facts(stores: Stores | None, why: str) -> Iterator[Fact]:
    if stores is None:
        problem = _("No request can be taken: %(why)s. It starts with Lightcone, or is that of LIGHTCONE_REDIS_URL.")
        yield Fact(_("State"), _("does not answer"), problem % {"why": why})
        return
    used, limit = stores.state.memory
    yield Fact(_("Version"), stores.version)
    yield Fact(_("Up since"), _duration(stores.uptime_s))
    full = _("Requests are refused: raise LIGHTCONE_VALKEY_BYTES, or its own maxmemory.")
    size = f"{filesizeformat(used)} / {filesizeformat(limit)}" if limit else filesizeformat(used)
    yield Fact(_("Memory"), size, full if limit and used > FULL_SHARE * limit else "")
    lossy = _("Set maxmemory-policy noeviction: any other policy loses requests.")
    yield Fact(_("When it is full"), stores.policy, "" if stores.policy == "noeviction" else lossy)
    yield Fact(_("Clients"), str(stores.num_clients))


def _queue_facts(stores: Stores) -> Iterator[Fact]:
    state = stores.state
    yield Fact(_("Processes that read answers"), str(state.num_webs))
    slow = _("The oldest waits for a worker: load its model, or start a worker for it.")
    yield Fact(
        _("Requests that wait for a worker"),
        _with_age(sum(state.queued.values()), stores.queue_age_s),
        slow if stores.queue_age_s > SLOW_S else "",
    )
    yield Fact(_("Requests that have not ended"), str(sum(state.live.values())))
    behind = _("Usage is not written: look at logs/maintenance.log. Nothing is lost while Valkey keeps it.")
    yield Fact(
        _("Usage records to be written"),
        _with_age(state.num_unwritten, stores.usage_age_s),
        behind if stores.usage_age_s > SLOW_S else "",
    )
    refused = ", ".join(f"{number(count)} × {status}" for status, count in sorted(state.refused.items()))
    yield Fact(_("Requests refused for their key"), refused or "0")


def _model_facts(stores: Stores) -> Iterator[Fact]:
    names = dict(ModelState.choices)
    states: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    ready = {lease.model for lease in stores.state.leases if lease.state == "ready"}
    for lease in stores.state.leases:
        states.setdefault(lease.model, []).append(str(names.get(lease.state, lease.state)))
        if lease.state == "failed":
            reasons[lease.model] = lease.reason
    for name in sorted({*ServedModel.objects.filter(enabled=True).values_list("name", flat=True), *states}):
        shown = ", ".join(states.get(name, [])) or _("no worker")
        yield Fact(name, shown, reasons.get(name, "") if name not in ready else "")


def _disk_facts() -> Iterator[Fact]:
    for folder in dict.fromkeys((settings.DATA_DIR, settings.LIGHTCONE_MODEL_STORE)):
        if Path(folder).exists():
            free = shutil.disk_usage(folder).free
            low = _("Free some space: databases and logs need it.") if free < MIN_DISK_BYTES else ""
            yield Fact(str(folder), _("%(size)s free") % {"size": filesizeformat(free)}, low)


def _with_age(count: int, age_s: float) -> str:
    if not count:
        return "0"
    return _("%(number)s, the oldest for %(age)s") % {"number": number(count), "age": _duration(age_s)}


def _duration(seconds: float) -> str:
    """Format a span as `42 s`, `5 min`, `3.5 h` or `12 d`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{number(seconds / 3600, 1)} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
