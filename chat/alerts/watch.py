"""What maintenance looks at: budgets and errors in SQL, workers, models, queues and records in Valkey, the disk.

One maintenance process at a time looks at what all share; each looks at its own disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from channels.db import database_sync_to_async
from django.conf import settings
from django.utils import timezone
from redis.asyncio import Redis

from chat.alerts.models import BUDGET_PERCENTS, Alert, AlertRule, Condition
from chat.alerts.rules import rules_read
from chat.alerts.services import Look, Seen, alerts_observe
from chat.budgets.models import Budget, BudgetSpend
from chat.budgets.services import budget_entry
from chat.relay.state.hosts import HAS_LEFT, HOST_LIFE_MS
from chat.relay.state.keys import Keys, run_id_floor
from chat.relay.state.workers import model_conditions, worker_leases
from chat.relay.valkey import Answers, lock_hold
from chat.usage.measures import status_class
from chat.usage.models import RequestLog, StatusClass

logger = logging.getLogger(__name__)

LOCK_MS = 20_000
DISK_S = 3.0
"""How long a turn waits for the disks."""
GIB = 2**30
MOST_REQUESTS = 5000
"""The newest ones that a rate of errors is made of."""
LONGEST_REQUEST = timedelta(hours=1)
"""Of which an end in the window is still found: the log is ordered by arrival."""
MOST_QUEUED = 100
BUDGETS_AT_ONCE = 500
FORGOTTEN_WORKER = timedelta(hours=24)
"""After its alert fired, if it is not on the list."""
FORGOTTEN_DISK = timedelta(hours=1)

Rules = dict[str, AlertRule]


class Watch:
    """The looks of one maintenance process. Repeat `turn`."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client: Answers = client
        self._keys = keys
        self._token = secrets.token_hex(8).encode()
        self._disk_thread: asyncio.Future[Look] | None = None

    async def turn(self) -> None:
        """Look, and store what follows. Without Valkey the disks alone are looked at. Raises redis.RedisError."""
        now = timezone.now()
        rules = await database_sync_to_async(rules_read)()
        disks = asyncio.ensure_future(self._disks(rules, now))
        try:
            await self._shared(rules, now)
        finally:
            await disks

    async def _shared(self, rules: Rules, now: datetime) -> None:
        """Look at what all processes share, if this one has the lock."""
        if not await lock_hold(self._client, self._keys.alerts, self._token, LOCK_MS):
            return
        looks = [
            await workers_look(self._client, self._keys, rules),
            await models_look(self._client, self._keys),
            await queue_look(self._client, self._keys, rules, now_s=time.time()),
            await usage_look(self._client, self._keys, rules, now_s=time.time()),
            *await database_sync_to_async(database_looks)(rules, now),
        ]
        await _observe(looks, now=now)

    async def _disks(self, rules: Rules, now: datetime) -> None:
        """Look at the disks in a thread. One that hangs is left alone, and no second one begins meanwhile."""
        if self._disk_thread is None:
            self._disk_thread = _in_thread(disk_look, rules)
        done, _late = await asyncio.wait({self._disk_thread}, timeout=DISK_S)
        if not done:
            logger.warning("the disks have not answered for %s s; they are not judged", DISK_S)
            return
        ended, self._disk_thread = self._disk_thread, None
        await _observe([ended.result()], now=now)


def _in_thread(look: Callable[[Rules], Look], rules: Rules) -> asyncio.Future[Look]:
    """Run a look in a daemon thread of its own, so that one that hangs holds neither a pool nor the end up."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Look] = loop.create_future()

    def run() -> None:
        try:
            found, failure = look(rules), None
        except Exception as error:
            found, failure = None, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found, failure)

    def settle(found: Look | None, failure: Exception | None) -> None:
        if failure is not None:
            result.set_exception(failure)
        elif found is not None:
            result.set_result(found)

    threading.Thread(target=run, name="alerts-disks", daemon=True).start()
    return result


_observe = database_sync_to_async(alerts_observe)


def database_looks(rules: Rules, now: datetime) -> list[Look]:
    return [*budget_looks(now), errors_look(rules[Condition.ERROR_RATE], now)]


def budget_looks(now: datetime) -> list[Look]:
    """Look at what is spent of each budget in its present window."""
    shares = list(_shares(now))
    return [
        Look(condition, [_budget_seen(budget, share, share >= percent) for budget, share in shares])
        for condition, percent in BUDGET_PERCENTS.items()
    ]


def _shares(now: datetime) -> Iterator[tuple[Budget, float]]:
    """Yield budgets with the percent that is spent, without those of which nothing is."""
    last = 0
    while budgets := list(Budget.objects.filter(pk__gt=last).order_by("pk")[:BUDGETS_AT_ONCE]):
        last = budgets[-1].pk
        entries = {budget.pk: budget_entry(budget) for budget in budgets}
        windows = {pk: entry.window_at(now).id for pk, entry in entries.items()}
        rows = BudgetSpend.objects.filter(budget__in=list(entries), window__in=set(windows.values()), spent__gt=0)
        spent = {(row.budget_id, row.window): row.spent for row in rows}
        for budget in budgets:
            if amount := spent.get((budget.pk, windows[budget.pk])):
                yield budget, 100 * amount / entries[budget.pk].amount


def _budget_seen(budget: Budget, share: float, holds: bool) -> Seen:
    return Seen(f"budget:{budget.pk}", budget.name, holds, value=share, org_id=budget.org_id)


def errors_look(rule: AlertRule, now: datetime) -> Look:
    """Look at the share of the server's errors in the requests that ended within the window."""
    since = now - timedelta(seconds=rule.window_s or 0)
    rows = RequestLog.objects.filter(pk__gte=run_id_floor(since - LONGEST_REQUEST)).order_by("-pk")
    ended = [
        status_class(status)
        for arrived_at, duration_ms, status in rows.values_list("arrived_at", "duration_ms", "status")[:MOST_REQUESTS]
        if arrived_at + timedelta(milliseconds=duration_ms or 0) >= since
    ]
    num_errors = ended.count(StatusClass.OURS.value)
    share = 100 * num_errors / len(ended) if ended else 0.0
    holds = len(ended) >= (rule.least_requests or 1) and share >= (rule.threshold or 0)
    detail = f"{num_errors:,} / {len(ended):,}"
    return Look(Condition.ERROR_RATE, [Seen("errors", "Lightcone", holds, value=share, detail=detail)])


async def workers_look(client: Answers, keys: Keys, rules: Rules) -> Look:
    """Look for worker hosts that have not reported, although none has said that it stops.

    The age of a report is what its time to live has lost, so clocks of machines need not agree. Other hosts take a
    silent one off the list after a while. What has an episode then stays silent, unless it has said that it stops.
    """
    opened = {alert.name: alert for alert in await _episodes_of(Condition.WORKER_LOST)}
    listed = sorted(raw.decode() for raw in await client.zrange(keys.hosts, 0, -1))
    unlisted = sorted(set(opened) - set(listed))
    pipe = client.pipeline(transaction=False)
    for node in listed:
        pipe.pttl(keys.host(node))
    for node in unlisted:
        pipe.hget(keys.host(node), HAS_LEFT)
    answers = await pipe.execute() if listed or unlisted else []
    most_s = rules[Condition.WORKER_LOST].threshold or 0
    seen = []
    for node, life_ms in zip(listed, answers[: len(listed)], strict=True):
        silent_s = (HOST_LIFE_MS - max(0, life_ms)) / 1000
        seen.append(Seen(f"worker:{node}", node, silent_s >= most_s, value=silent_s))
    now = timezone.now()
    for node, has_left in zip(unlisted, answers[len(listed) :], strict=True):
        alert = opened[node]
        is_forgotten = alert.fired_at is not None and now - alert.fired_at > FORGOTTEN_WORKER
        silent_s = most_s + (now - alert.since).total_seconds()
        seen.append(Seen(alert.subject, node, has_left != b"1" and not is_forgotten, value=silent_s))
    return Look(Condition.WORKER_LOST, seen, is_whole=False)


@database_sync_to_async
def _episodes_of(condition: Condition) -> list[Alert]:
    """Return the open alerts of a condition, and what has not held long enough."""
    return list(Alert.objects.filter(condition=condition, ended_at=None))


async def models_look(client: Answers, keys: Keys) -> Look:
    """Look for models whose best worker has failed. One that loads is neither well nor failed."""
    found = model_conditions(await worker_leases(client, keys))
    seen = [
        Seen(
            f"model:{name}",
            name,
            None if condition.state == "loading" else condition.state == "failed",
            detail=condition.reason if condition.state == "failed" else "",
        )
        for name, condition in sorted(found.items())
    ]
    return Look(Condition.MODEL_FAILED, seen)


async def queue_look(client: Answers, keys: Keys, rules: Rules, *, now_s: float) -> Look:
    """Look at how long the oldest request has waited for a worker.

    The reaper puts requests back at the end of the queue, so a first attempt waits since its id was made.
    """
    queued = await client.zrange(keys.queued, 0, MOST_QUEUED - 1, withscores=True)
    pipe = client.pipeline(transaction=False)
    for raw, _score in queued:
        pipe.hget(keys.meta(raw.decode()), "attempt")
    attempts = await pipe.execute() if queued else []
    since_ms = [
        int(raw[:12], 16) if attempt in (None, b"1") else score
        for (raw, score), attempt in zip(queued, attempts, strict=True)
    ]
    age_s = max(0.0, now_s - min(since_ms) / 1000) if since_ms else 0.0
    holds = age_s >= (rules[Condition.QUEUE_AGE].threshold or 0)
    return Look(Condition.QUEUE_AGE, [Seen("queue", "Lightcone", holds, value=age_s)])


async def usage_look(client: Answers, keys: Keys, rules: Rules, *, now_s: float) -> Look:
    """Look at how long the oldest record has waited for the usage writer."""
    oldest = await client.xrange(keys.usage, count=1)
    age_s = max(0.0, now_s - int(oldest[0][0].partition(b"-")[0]) / 1000) if oldest else 0.0
    holds = age_s >= (rules[Condition.USAGE_BEHIND].threshold or 0)
    return Look(Condition.USAGE_BEHIND, [Seen("usage", "Lightcone", holds, value=age_s)])


def disk_look(rules: Rules) -> Look:
    """Look at the disks of the data and of the models; folders of one disk are one subject.

    Of a folder that fails nothing can be told.
    """
    machine, least = platform.node(), rules[Condition.DISK_LOW].threshold or 0
    seen = []
    devices: set[int] = set()
    for folder in map(Path, (settings.DATA_DIR, settings.LIGHTCONE_MODEL_STORE)):
        subject, name = f"disk:{machine}:{folder}"[:300], f"{folder} ({machine})"
        try:
            device, free = os.stat(folder).st_dev, shutil.disk_usage(folder).free / GIB
        except FileNotFoundError:
            continue
        except OSError:
            seen.append(Seen(subject, name, None))
            continue
        if device not in devices:
            devices.add(device)
            seen.append(Seen(subject, name, free < least, value=free))
    return Look(Condition.DISK_LOW, seen, is_whole=False, given_up_after=FORGOTTEN_DISK)
