"""Metrics for Prometheus: each request counted once, fixed labels, everything documented."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import OperationalError
from prometheus_client.parser import text_string_to_metric_families

from chat.api.registry import counted_routes
from chat.relay.state.records import pack_record
from chat.relay.state.usage_stream import UsageStream
from chat.relay.state.workers import WorkerLease
from chat.usage.metrics import MAX_MODELS, RequestMetrics, SystemState, route_label, system_render, system_state
from chat.usage.services import TerminalRecord
from chat.workers import maintenance
from chat.workers.maintenance import metrics_text, usage_write_once
from tests.chat.records import record
from tests.chat.relay.world import MODEL, World

ROUTES = counted_routes() | {"/ws/playground"}
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "operations.md").read_text()


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Return the samples: (name, label values in the order of their names) -> value."""
    families = text_string_to_metric_families(text.decode())
    return {
        (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def counted(*records: dict[str, Any]) -> dict[tuple[str, ...], float]:
    metrics = RequestMetrics(ROUTES)
    metrics.count([TerminalRecord.from_dict(one) for one in records])
    return samples(metrics.render())


def lease(worker_id: str, state: str = "ready", **fields: Any) -> WorkerLease:
    values = {
        "phase": "",
        "fraction": 1.0,
        "reason": "",
        "max_num_seqs": 4,
        "max_model_len": 2048,
        "num_live": 1,
        "num_running": 2,
        "num_waiting": 1,
    }
    return WorkerLease(worker_id=worker_id, model=MODEL, state=state, **{**values, **fields})


STATE = SystemState(
    leases=(
        lease(
            "a", num_blocks=100, num_free_blocks=40, num_prompt_tokens=80, num_cached_tokens=20, num_restored_blocks=7
        ),
        lease("b", "loading", num_running=0, num_waiting=0, num_restored_blocks=2),
    ),
    queued={MODEL: 3, "asleep": 0},
    live={MODEL: 5, "asleep": 0},
    num_webs=2,
    num_unwritten=7,
    memory=(1000, 0),
    refused={"401": 3000},
)


def test_a_request_is_counted_with_its_tokens_and_times() -> None:
    seen = counted(
        record(route="/v1/chat/completions/"), record(route="/v1/chat/completions", status=499, outcome="disconnected")
    )
    assert seen["lightcone_requests_total", "small", "/v1/chat/completions", "200"] == 1
    assert seen["lightcone_requests_total", "small", "/v1/chat/completions", "499"] == 1
    assert seen["lightcone_prompt_tokens_total", "small"] == 20
    assert seen["lightcone_cached_prompt_tokens_total", "small"] == 8
    assert seen["lightcone_completion_tokens_total", "small"] == 14
    assert seen["lightcone_time_to_first_token_seconds_sum", "small"] == pytest.approx(0.24)
    assert seen["lightcone_queue_time_seconds_sum", "small"] == pytest.approx(0.04)
    assert seen["lightcone_request_duration_seconds_sum", "small"] == pytest.approx(2.0)
    assert seen["lightcone_time_per_output_token_seconds_sum", "small"] == pytest.approx(2 * 0.88 / 6)


def test_a_rejected_request_is_counted_and_measures_nothing() -> None:
    seen = counted(
        record(
            status=401, outcome="rejected", model="", route="/v1/chat/completions", first_token_at=None, retry_count=2
        )
    )
    assert seen["lightcone_requests_total", "other", "/v1/chat/completions", "401"] == 1
    assert seen["lightcone_repeated_requests_total", "/v1/chat/completions"] == 1
    assert not any(name.startswith(("lightcone_prompt", "lightcone_request_duration")) for name, *_ in seen)


def test_a_record_with_missing_or_negative_times_is_harmless() -> None:
    seen = counted(
        record(first_token_at=None, started_at=None, ended_at=None), record(first_token_at=0.0, ended_at=-5.0)
    )
    assert seen["lightcone_requests_total", "small", "other", "200"] == 2
    assert seen["lightcone_time_to_first_token_seconds_sum", "small"] == 0


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions/", "/chat/completions"),
        ("/v4/beta/chat/completions", "/v4/beta/chat/completions"),
        ("/v5/chat/completions", "/v5/chat/completions"),
        ("/v1/responses", "/v1/responses"),
        ("/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/ws/playground", "/ws/playground"),
        ("/v4/beta/completions", "/v4/beta/completions"),
        ("/v1/chat/completions/render", "/v1/chat/completions/render"),
        ("/tokenize/", "/tokenize"),
        ("/v1/responses/resp_1234", "other"),
        ("/v1/models/gpt-9", "other"),
        ("/v1/chat/completions\n", "other"),
        ("/" * 200, "other"),
        ("", "other"),
    ],
)
def test_a_route_is_one_of_ours_or_other(path: str, label: str) -> None:
    assert route_label(path, ROUTES) == label


def test_labels_are_bounded_for_any_record() -> None:
    """A mistyped model or other client text must not become a series."""
    sent = [
        record(model=f"m{number}", route=f"/v1/x{number}", status=number, user_label="ann") for number in range(1, 700)
    ]
    seen = counted(*sent)
    requests = [labels for name, *labels in seen if name == "lightcone_requests_total"]
    assert len({model for model, _, _ in requests}) == MAX_MODELS + 1
    assert {route for _, route, _ in requests} == {"other"}
    assert "1" not in {status for _, _, status in requests}
    assert not any("ann" in labels or "accept0001" in labels for _, *labels in seen)


def test_gauges_sum_the_values_of_all_workers() -> None:
    seen = samples(system_render(STATE))
    assert seen["lightcone_workers", MODEL, "ready"] == seen["lightcone_workers", MODEL, "loading"] == 1
    assert seen["lightcone_workers", "asleep", "ready"] == 0
    assert (seen["lightcone_seats", MODEL], seen["lightcone_running_sequences", MODEL]) == (8, 2)
    assert (seen["lightcone_kv_blocks", MODEL], seen["lightcone_kv_blocks_used", MODEL]) == (100, 60)
    assert seen["lightcone_prefix_cache_hit_ratio", MODEL] == 0.25
    assert seen["lightcone_restored_blocks", MODEL] == 9
    assert (seen["lightcone_queued_requests", MODEL], seen["lightcone_live_requests", MODEL]) == (3, 5)
    assert (seen["lightcone_reading_processes",], seen["lightcone_usage_records_waiting",]) == (2, 7)
    assert seen["lightcone_valkey_memory_bytes",] == 1000


def test_without_valkey_only_its_absence_is_reported() -> None:
    assert samples(system_render(None)) == {("lightcone_valkey_up",): 0}


def test_every_metric_is_documented_and_no_other() -> None:
    metrics = RequestMetrics(ROUTES)
    text = metrics.render() + system_render(STATE)
    exported = set(re.findall(r"^# TYPE (\w+)", text.decode(), re.MULTILINE))
    section = PAGE[PAGE.index("## Metrics") :]
    documented = {
        name
        for row in re.findall(r"^\| (`lightcone_.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"lightcone_\w+", row)
    }
    assert documented == exported
    labels = {
        label
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
        for label in one.labels
    }
    assert labels <= {"model", "route", "status", "le"}


def test_alerts_and_dashboard_use_existing_metrics() -> None:
    text = RequestMetrics(ROUTES).render() + system_render(STATE)
    exported = set(re.findall(r"^# TYPE (\w+)", text.decode(), re.MULTILINE))
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    names = {re.sub(r"_bucket$", "", name) for expression in asked for name in re.findall(r"lightcone_\w+", expression)}
    assert len(asked) > 15
    assert names <= exported


@pytest.fixture
async def world(valkey: str, settings: Any) -> AsyncIterator[World]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    world = World(valkey, settings.LIGHTCONE_DEPLOYMENT)
    yield world
    await world.close()


async def test_leases_and_queues_are_read_from_valkey(world: World) -> None:
    worker = await world.worker()
    await worker.beat()
    await world.client.lpush(world.keys.tasks(MODEL), "a", "b")
    state = await system_state(world.client, world.keys, ["asleep"])
    assert [one.worker_id for one in state.leases] == [worker.worker_id]
    assert state.queued == {MODEL: 2, "asleep": 0}
    assert state.num_webs == 0
    assert state.memory[0] > 0


@pytest.mark.django_db(transaction=True)
async def test_records_that_come_twice_are_counted_once(world: World) -> None:
    metrics = RequestMetrics(ROUTES)
    for one in [record()] * 3 + [record()]:
        await world.client.xadd(world.keys.usage, {"r": pack_record(one)})
        await usage_write_once(UsageStream(world.client, world.keys), gather_s=0.0, count=metrics.count)
        await world.client.delete(world.keys.usage_writer)
    text = await metrics_text(metrics, world.client, world.keys)
    seen = samples(text)
    assert seen["lightcone_requests_total", "small", "other", "200"] == 2
    assert seen["lightcone_valkey_up",] == 1


@pytest.mark.django_db(transaction=True)
async def test_a_database_failure_is_not_reported_as_a_valkey_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> list[str]:
        raise OperationalError("no such host")

    monkeypatch.setattr(maintenance, "model_names", refuse)
    seen = samples(await metrics_text(RequestMetrics(ROUTES), world.client, world.keys))
    assert (seen["lightcone_valkey_up",], seen["lightcone_usage_records_waiting",]) == (1, 0)
