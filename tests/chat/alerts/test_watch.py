"""What is watched, read from the stores as workers, admission and the usage writer fill them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import namedtuple
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.utils import timezone
from redis.exceptions import RedisError

from chat.alerts.models import Alert, AlertRule, Condition
from chat.alerts.rules import rules_read
from chat.alerts.services import Look, alerts_observe
from chat.alerts.watch import (
    Watch,
    disk_look,
    errors_look,
    models_look,
    queue_look,
    usage_look,
    workers_look,
)
from chat.relay.state.hosts import HOST_LIFE_MS
from chat.relay.state.keys import Keys, run_id_create
from chat.relay.valkey import valkey_connect
from chat.usage.services import usage_records_write
from chat.workers.host_messages import HostMessages
from chat.workers.host_report import HostReporter
from tests.chat.live.floor import NODE, LiveFloor, floor
from tests.chat.records import record

__all__ = ["floor"]

pytestmark = pytest.mark.django_db(transaction=True)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def rules(db: None) -> dict[str, AlertRule]:
    return rules_read()


@pytest.fixture
async def client(floor: LiveFloor, valkey: str) -> AsyncIterator[Any]:
    made: Any = valkey_connect(valkey)
    yield made
    await made.aclose()


def held(look: Look) -> dict[str, bool | None]:
    return {one.subject: one.holds for one in look.seen}


def silent(floor: LiveFloor, node: str, seconds: float) -> None:
    """Let a host have reported so long ago."""
    floor.host(node)
    floor.client.pexpire(floor.keys.host(node), int(HOST_LIFE_MS - seconds * 1000))


async def test_a_worker_that_does_not_report_is_lost(
    floor: LiveFloor, client: Any, rules: dict[str, AlertRule]
) -> None:
    silent(floor, "model@well", 1)
    silent(floor, "model@quiet", 25)
    floor.client.zadd(floor.keys.hosts, {"model@gone": 1})
    look = await workers_look(client, floor.keys, rules)
    assert held(look) == {"worker:model@well": False, "worker:model@quiet": True, "worker:model@gone": True}
    assert not look.is_whole


async def test_a_worker_that_stops_says_so(floor: LiveFloor, client: Any, rules: dict[str, AlertRule]) -> None:
    reporter = HostReporter(NODE, device="cpu", budget=0)
    pipe = floor.client.pipeline()
    reporter.write(pipe, floor.keys, [], held_bytes=0, is_draining=False)
    pipe.execute()
    assert held(await workers_look(client, floor.keys, rules)) == {f"worker:{NODE}": False}
    HostMessages(floor.client, floor.keys).leave(NODE)
    assert held(await workers_look(client, floor.keys, rules)) == {}


async def test_models_that_failed_are_named_with_the_reason(floor: LiveFloor, client: Any) -> None:
    floor.lease("broken", "failed", reason="out of memory")
    floor.lease("coming", "loading")
    floor.lease("half", "failed")
    floor.lease("half", "ready")
    look = await models_look(client, floor.keys)
    assert held(look) == {"model:broken": True, "model:coming": None, "model:half": False}
    assert [one.detail for one in look.seen if one.holds] == ["out of memory"]


async def test_the_age_of_the_queue_outlives_the_reaper(
    floor: LiveFloor, client: Any, rules: dict[str, AlertRule]
) -> None:
    """The reaper puts a request back with a new time, and it still waits since it came."""
    now_s = time.time()
    assert held(await queue_look(client, floor.keys, rules, now_s=now_s)) == {"queue": False}
    first, again = run_id_create(at_s=now_s - 90), run_id_create(at_s=now_s - 900)
    for run_id, attempt in ((again, 2), (first, 1)):
        floor.client.hset(floor.keys.meta(run_id), mapping={"attempt": attempt})
        floor.client.zadd(floor.keys.queued, {run_id: int(now_s * 1000)})
    look = await queue_look(client, floor.keys, rules, now_s=now_s)
    assert held(look) == {"queue": True}
    assert look.seen[0].value == pytest.approx(90, abs=0.01)


async def test_a_record_that_waits_is_seen(floor: LiveFloor, client: Any, rules: dict[str, AlertRule]) -> None:
    assert held(await usage_look(client, floor.keys, rules, now_s=time.time())) == {"usage": False}
    floor.client.xadd(floor.keys.usage, {"r": b""}, id=f"{int((time.time() - 70) * 1000)}-0")
    assert held(await usage_look(client, floor.keys, rules, now_s=time.time())) == {"usage": True}


@pytest.mark.parametrize(
    ("num_ours", "num_good", "holds"),
    [(1, 19, True), (1, 20, False), (19, 0, False), (0, 100, False)],
    ids=["at the limit", "below it", "too few requests", "none"],
)
def test_the_share_of_errors_is_that_of_the_window(
    rules: dict[str, AlertRule], num_ours: int, num_good: int, holds: bool
) -> None:
    """Clients' errors are none of ours. A request that took long counts when it ended."""
    now = timezone.now()
    now_s = now.timestamp()
    ends = [(503, 100)] * num_ours + [(200, 100)] * (num_good - num_good // 2) + [(429, 100)] * (num_good // 2)
    known = [
        record(at_s=now_s - ago, status=status, outcome="failed" if status == 503 else "finished")
        | {"ended_at": now_s - 1}
        for status, ago in ends
    ]
    known += [record(at_s=now_s - 900, status=500) | {"ended_at": now_s - 800} for _ in range(30)]
    usage_records_write(known)
    look = errors_look(rules[Condition.ERROR_RATE], now)
    assert held(look) == {"errors": holds}
    assert look.seen[0].detail == f"{num_ours} / {num_ours + num_good}"


def test_a_long_request_counts_when_it_ended(rules: dict[str, AlertRule]) -> None:
    now = timezone.now()
    now_s = now.timestamp()
    usage_records_write([record(at_s=now_s - 700, status=504) | {"ended_at": now_s - 5} for _ in range(20)])
    assert held(errors_look(rules[Condition.ERROR_RATE], now)) == {"errors": True}


def test_disks_are_looked_at_once_each(
    rules: dict[str, AlertRule], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR, settings.LIGHTCONE_MODEL_STORE = tmp_path, tmp_path / "models"
    (tmp_path / "models").mkdir()
    (seen,) = disk_look(rules).seen
    assert seen.holds is False
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage(10**12, 10**12, 2**29))
    (seen,) = disk_look(rules).seen
    assert (seen.holds, seen.value) == (True, 0.5)
    assert str(tmp_path) in seen.name


async def test_a_turn_tells_and_another_process_looks_at_its_disks_alone(floor: LiveFloor, client: Any) -> None:
    await AlertRule.objects.all().adelete()
    one, other = Watch(client, floor.keys), Watch(client, floor.keys)
    await one.turn()
    floor.lease("broken", "failed", reason="out of memory")
    await other.turn()
    assert await Alert.objects.acount() == 0
    await one.turn()
    await one.turn()
    alert = await Alert.objects.aget()
    assert (alert.condition, alert.subject, alert.is_open) == ("model_failed", "model:broken", True)
    floor.client.delete(*floor.client.keys(f"{floor.keys.worker_prefix}*"))
    await one.turn()
    await alert.arefresh_from_db()
    assert alert.ended_at is not None


async def test_without_valkey_the_disk_alone_is_watched(
    client: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = await database_sync_to_async(rules_read)()
    rules[Condition.DISK_LOW].hold_s = 0
    await rules[Condition.DISK_LOW].asave()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage(10**12, 10**12, 2**29))
    away: Any = valkey_connect("redis://127.0.0.1:9/0")
    with pytest.raises((RedisError, OSError)):
        await Watch(away, Keys("none")).turn()
    assert [alert.condition async for alert in Alert.objects.all()] == ["disk_low"]


def test_a_folder_that_fails_hides_no_other(
    rules: dict[str, AlertRule], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR, settings.LIGHTCONE_MODEL_STORE = tmp_path / "broken", tmp_path
    (tmp_path / "broken").mkdir()

    def usage(folder: Path) -> Usage:
        if folder.name == "broken":
            raise OSError(5, "Input/output error")
        return Usage(10**12, 10**12, 2**29)

    monkeypatch.setattr("shutil.disk_usage", usage)
    assert [one.holds for one in disk_look(rules).seen] == [None, True]


async def test_a_folder_that_hangs_delays_no_other_look(
    floor: LiveFloor, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = threading.Event()
    calls: list[Path] = []

    def usage(folder: Path) -> Usage:
        calls.append(folder)
        may_go.wait(30)
        return Usage(10**12, 10**12, 10**12)

    monkeypatch.setattr("shutil.disk_usage", usage)
    monkeypatch.setattr("chat.alerts.watch.DISK_S", 0.05, raising=False)
    floor.lease("broken", "failed", reason="out of memory")
    watch = Watch(client, floor.keys)
    try:
        for _ in range(2):
            await asyncio.wait_for(watch.turn(), 10)
        assert [alert.condition async for alert in Alert.objects.all()] == ["model_failed"]
        assert len(calls) == 1
    finally:
        may_go.set()


async def test_a_lost_worker_that_others_took_off_the_list_is_still_lost(
    floor: LiveFloor, client: Any, rules: dict[str, AlertRule]
) -> None:
    """Also before its alert has fired. One that says that it stops is not."""
    observe = database_sync_to_async(alerts_observe)
    rule = rules[Condition.WORKER_LOST]
    rule.hold_s = 300
    await rule.asave()
    silent(floor, "model@gone", 25)
    silent(floor, "model@stopping", 25)
    began = timezone.now()
    await observe([await workers_look(client, floor.keys, rules)], now=began)
    floor.client.zrem(floor.keys.hosts, "model@gone")
    floor.client.delete(floor.keys.host("model@gone"))
    HostMessages(floor.client, floor.keys).leave("model@stopping")
    look = await workers_look(client, floor.keys, rules)
    assert held(look) == {"worker:model@gone": True, "worker:model@stopping": False}
    await observe([look], now=began + timedelta(seconds=301))
    alert = await Alert.objects.aget()
    assert (alert.subject, alert.is_open) == ("worker:model@gone", True)
    await Alert.objects.aupdate(fired_at=timezone.now() - timedelta(hours=25))
    assert held(await workers_look(client, floor.keys, rules)) == {"worker:model@gone": False}
    await Alert.objects.aupdate(fired_at=timezone.now())
    silent(floor, "model@gone", 1)
    assert held(await workers_look(client, floor.keys, rules)) == {"worker:model@gone": False}


async def test_a_worker_that_came_back_and_died_has_not_left(
    floor: LiveFloor, client: Any, rules: dict[str, AlertRule]
) -> None:
    HostMessages(floor.client, floor.keys).leave("model@back")
    silent(floor, "model@back", 25)
    await database_sync_to_async(alerts_observe)([await workers_look(client, floor.keys, rules)], now=timezone.now())
    floor.client.zrem(floor.keys.hosts, "model@back")
    assert held(await workers_look(client, floor.keys, rules)) == {"worker:model@back": True}
