"""The snapshot: what it says of workers, models and requests, what it costs, and how often it is read."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chat.catalog.services import model_register
from chat.live import snapshot as live_snapshot
from chat.live.panels import Panel, PanelCache, panel_message
from chat.live.snapshot import Snapshot, snapshot_read
from chat.live.source import SnapshotSource
from chat.models import Project, ServedModel
from tests.chat.live.floor import NODE, LiveFloor, floor

__all__ = ["floor"]
pytestmark = pytest.mark.django_db


def read(floor: LiveFloor) -> Snapshot:
    return snapshot_read(floor.client, floor.keys)


def test_an_empty_installation_has_no_workers(floor: LiveFloor) -> None:
    found = read(floor)
    assert (found.hosts, found.unhosted, found.runs, found.projects) == ((), (), (), ())


def test_a_worker_shows_its_machine_and_its_models(floor: LiveFloor) -> None:
    row = model_register(name="small", path="/models/small.gguf")
    floor.host(process_bytes=5, lines=("a line",), model_lines={"small": ("loading",)})
    counts = {"num_blocks": 100, "num_free_blocks": 75, "num_prompt_tokens": 40, "num_cached_tokens": 10}
    floor.lease("small", num_running=3, num_waiting=2, num_live=5, output_per_s=12.5, step_ms=8.25, **counts)
    (host,) = read(floor).hosts
    assert (host.node, host.state, host.report.process_bytes, host.num_live) == (NODE, "ready", 5, 5)
    (model,) = host.models
    assert (model.name, model.pk, model.state, model.lines) == ("small", row.pk, "ready", ("loading",))
    assert (model.num_running, model.num_waiting, model.cache_used, model.hit_rate) == (3, 2, 0.25, 0.25)
    assert (model.output_per_s, model.step_ms) == (12.5, 8.25)


def test_a_load_shows_its_bytes_and_time_left_and_a_failure_its_reason(floor: LiveFloor) -> None:
    floor.host()
    progress = {"phase": "loading weights", "fraction": "0.250", "total_bytes": 4000, "seconds_left": "6.0"}
    floor.lease("large", "loading", **progress)
    floor.lease("wrong", "failed", reason="no such file")
    large, wrong = read(floor).hosts[0].models
    assert (large.phase, large.fraction, large.loaded_bytes, large.seconds_left) == ("loading weights", 0.25, 1000, 6.0)
    assert (wrong.state, wrong.reason) == ("failed", "no such file")


def test_a_model_that_leaves_with_requests_drains(floor: LiveFloor) -> None:
    floor.lease("small", "unloaded", num_live=2)
    assert read(floor).hosts[0].models[0].state == "draining"


def test_models_without_a_worker_are_unloaded(floor: LiveFloor) -> None:
    model_register(name="small", path="/models/small.gguf")
    found = read(floor)
    assert [(model.name, model.state, model.node) for model in found.unhosted] == [("small", "unloaded", "")]


def test_a_worker_that_says_nothing_is_lost_and_one_of_an_earlier_version_is_shown(floor: LiveFloor) -> None:
    floor.host("model@gone", beat_at=time.time() - 20)
    floor.lease("small", node="model@old")
    lost, old = read(floor).hosts
    assert (lost.node, lost.state, old.node, old.state) == ("model@gone", "lost", "model@old", "ready")
    assert lost.age_s >= 20


def test_requests_are_counted_by_project(floor: LiveFloor, project: Project) -> None:
    model_register(name="small", path="/models/small.gguf")
    worker = floor.lease("small")
    floor.run("small", project_id=project.pk, worker=worker)
    floor.run("small", project_id=project.pk, state="queued")
    floor.run("small", state="queued")
    ended = floor.run("small")
    floor.client.hset(floor.keys.meta(ended), "state", "ended")
    found = read(floor)
    assert found.projects == ((project.name, 1, 1), ("", 0, 1))
    assert found.live == {"small": 4}
    assert sorted(run.state for run in found.runs) == ["queued", "queued", "running"]


def test_settings_that_differ_from_the_running_ones_are_named(floor: LiveFloor) -> None:
    model_register(name="small", path="/models/small.gguf")
    running = json.dumps({"max_model_len": "2048"})
    floor.lease("small", settings=running, outdated="files")
    assert read(floor).hosts[0].models[0].differing == ()
    ServedModel.objects.update(max_model_len=4096)
    (model,) = read(floor).hosts[0].models
    assert (model.differing, model.outdated) == ((("max_model_len", "2048", "4096"),), "files")


def test_the_cost_does_not_grow_with_requests_and_workers(
    floor: LiveFloor, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_snapshot, "MAX_RUNS", 10)
    model_register(name="small", path="/models/small.gguf")

    def commands() -> int:
        before = floor.client.info("stats")["total_commands_processed"]
        with CaptureQueriesContext(connection) as queries:
            found = read(floor)
        assert len(queries) <= 2
        assert len(found.runs) <= 10
        return int(floor.client.info("stats")["total_commands_processed"] - before)

    floor.host()
    floor.lease("small")
    for _ in range(20):
        floor.run("small", project_id=project.pk)
    few = commands()
    for _ in range(200):
        floor.run("small", project_id=project.pk)
    assert commands() <= few + 5
    assert read(floor).num_left_out == 210


def test_many_viewers_share_one_snapshot_a_second() -> None:
    reads: list[float] = []
    now = [100.0]

    def snapshot() -> Any:
        reads.append(now[0])
        return object()

    source = SnapshotSource(snapshot, clock=lambda: now[0])
    assert len({id(source.latest()) for _ in range(50)}) == 1
    now[0] += 1.0
    source.latest()
    assert reads == [100.0, 101.0]
    source.forget()
    source.latest()
    assert len(reads) == 3


def test_what_cannot_be_read_is_left_out(floor: LiveFloor, project: Project) -> None:
    model_register(name="small", path="/models/small.gguf")
    floor.host()
    floor.lease("small")
    floor.lease("small", fraction="much")
    floor.lease("small", state="asleep")
    floor.client.hdel(floor.keys.worker(floor.lease("small")), "phase")
    floor.client.hset(floor.keys.meta(floor.run("small")), "about", "{")
    run_id = floor.run("small", project_id=project.pk)
    odd = floor.host("model@odd")
    floor.client.hset(floor.keys.host(odd), "pid", "none")
    found = read(floor)
    assert [(host.node, len(host.models)) for host in found.hosts] == [(NODE, 1)]
    assert [run.run_id for run in found.runs] == [run_id]


def test_a_message_is_made_once_for_all_who_see_the_same(floor: LiveFloor) -> None:
    floor.host()
    cache, panel, found = PanelCache(), Panel("workers"), read(floor)
    assert cache.kept(panel, found) is None
    text = cache.text(panel, found)
    assert json.loads(text) == json.loads(json.dumps(panel_message(panel, found)))
    assert cache.text(panel, found) is text
    assert cache.kept(panel, found) is text
    assert cache.kept(panel, read(floor)) is None
