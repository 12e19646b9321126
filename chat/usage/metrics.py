"""Metrics for Prometheus: counters and histograms of finished requests, gauges of workers, queues and Valkey.

Labels come from fixed lists, so that clients cannot add any. A request is counted when its terminal record is stored.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from redis.asyncio import Redis

from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.workers import WorkerLease, worker_leases
from chat.relay.valkey import Answers
from chat.usage.services import TerminalRecord
from engine.api import Outcome

disable_created_metrics()

MAX_MODELS = 200
OTHER = "other"
STATES = ("ready", "loading", "unloaded", "draining", "failed")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SECONDS_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
TOKENS = tuple(float(4**power) for power in range(10))


def route_label(path: str, routes: Collection[str]) -> str:
    """Return one of `routes`, without a trailing slash, or `other`."""
    route = path.rstrip("/")
    return route if route in routes else OTHER


class RequestMetrics:
    """The counters and histograms of this process. `routes`: those that are counted by name."""

    def __init__(self, routes: Collection[str]) -> None:
        self._routes = routes
        registry = self.registry = CollectorRegistry()
        self._models: set[str] = set()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, namespace="lightcone", registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ("model",), namespace="lightcone", registry=registry, buckets=buckets)

        self._requests = counter(
            "requests", "Requests that ended, by the status that clients saw.", "model", "route", "status"
        )
        self._repeats = counter(
            "repeated_requests", "Requests that a client's library sent again after a failure.", "route"
        )
        self._prompt = counter("prompt_tokens", "Tokens of prompts, cached ones included.", "model")
        self._cached = counter("cached_prompt_tokens", "Tokens of prompts that were in the prefix cache.", "model")
        self._completion = counter("completion_tokens", "Tokens that were generated.", "model")
        self._takeovers = counter(
            "takeovers", "Times that a request went to another worker, as its own was lost or stopped.", "model"
        )
        self._queue = histogram("queue_time_seconds", "From the arrival of a request to its first step.", SECONDS)
        self._first = histogram(
            "time_to_first_token_seconds", "From the arrival of a request to its first token.", SECONDS
        )
        self._duration = histogram("request_duration_seconds", "From the arrival of a request to its end.", SECONDS)
        self._per_token = histogram(
            "time_per_output_token_seconds", "Between tokens after the first, on average.", SECONDS_PER_TOKEN
        )
        self._prompt_size = histogram("request_prompt_tokens", "Tokens of one prompt.", TOKENS)
        self._completion_size = histogram("request_completion_tokens", "Tokens generated for one request.", TOKENS)

    def count(self, records: Iterable[TerminalRecord]) -> None:
        """Count records that have just been stored for the first time."""
        for record in records:
            self._count(record)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _count(self, record: TerminalRecord) -> None:
        model, route = self._model_label(record.model), route_label(record.route, self._routes)
        status = str(record.status) if 200 <= record.status <= 599 else OTHER
        self._requests.labels(model, route, status).inc()
        if record.retry_count > 0:
            self._repeats.labels(route).inc()
        if record.outcome == Outcome.REJECTED:
            return
        self._prompt.labels(model).inc(max(0, record.prompt_tokens))
        self._cached.labels(model).inc(max(0, record.cached_tokens))
        self._completion.labels(model).inc(max(0, record.completion_tokens))
        self._takeovers.labels(model).inc(max(0, record.attempts - 1))
        self._prompt_size.labels(model).observe(record.prompt_tokens)
        self._completion_size.labels(model).observe(record.completion_tokens)
        for histogram, instant in (
            (self._queue, record.started_at),
            (self._first, record.first_token_at),
            (self._duration, record.ended_at),
        ):
            if instant is not None:
                histogram.labels(model).observe(max(0.0, instant - record.arrived_at))
        if record.first_token_at is not None and record.ended_at is not None and record.completion_tokens > 1:
            spent_s = max(0.0, record.ended_at - record.first_token_at)
            self._per_token.labels(model).observe(spent_s / (record.completion_tokens - 1))

    def _model_label(self, name: str) -> str:
        """Return the name of the model, or `other` for no model and beyond `MAX_MODELS` names."""
        if name and name not in self._models and len(self._models) < MAX_MODELS:
            self._models.add(name)
        return name if name in self._models else OTHER


@dataclass(frozen=True, slots=True)
class SystemState:
    """The state of the installation that the gauges show."""

    leases: tuple[WorkerLease, ...]
    queued: dict[str, int]
    """Tasks without a worker, by model."""
    live: dict[str, int]
    """Runs that have not ended, by model."""
    num_webs: int
    num_unwritten: int
    """Terminal records that wait for the usage writer."""
    memory: tuple[int, int]
    """Bytes in Valkey, and its limit, 0 if there is none."""
    refused: dict[str, int]


async def system_state(client: Redis, keys: Keys, models: Iterable[str] = ()) -> SystemState:
    """Read the present state. `models`: names to show even without a worker. Raises redis.RedisError."""
    valkey: Answers = client
    leases = tuple(await worker_leases(valkey, keys))
    names = sorted({lease.model for lease in leases} | set(models))[:MAX_MODELS]
    web_ids = await valkey.smembers(keys.webs)
    now_ms = int(time.time() * 1000)
    pipe = valkey.pipeline(transaction=False)
    for name in names:
        pipe.llen(keys.tasks(model_slug(name)))
        pipe.zcount(keys.model_live(model_slug(name)), now_ms, "+inf")
    for web_id in web_ids:
        pipe.exists(keys.web(web_id.decode()))
    pipe.xlen(keys.usage)
    pipe.info("memory")
    pipe.hgetall(keys.refused)
    *answers, num_unwritten, memory, refused = await pipe.execute()
    counts, webs = answers[: 2 * len(names)], answers[2 * len(names) :]
    return SystemState(
        leases=leases,
        queued=dict(zip(names, counts[0::2], strict=True)),
        live=dict(zip(names, counts[1::2], strict=True)),
        num_webs=sum(webs),
        num_unwritten=num_unwritten,
        memory=(int(memory["used_memory"]), int(memory.get("maxmemory", 0))),
        refused={status.decode(): int(number) for status, number in refused.items()},
    )


def system_render(state: SystemState | None) -> bytes:
    """Return the gauges as text. None: Valkey does not answer, and nothing else is known."""
    return generate_latest(_Families(_families(state)))


@dataclass(frozen=True, slots=True)
class _Families:
    """The collector of a list of families, for `generate_latest`."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def _families(state: SystemState | None) -> list[Metric]:
    def gauge(name: str, text: str, values: dict[tuple[str, ...], float], *labels: str) -> Metric:
        family = GaugeMetricFamily(f"lightcone_{name}", text, labels=labels)
        for label_values, value in values.items():
            family.add_metric(label_values, value)
        return family

    def single(name: str, text: str, value: float) -> Metric:
        return gauge(name, text, {(): value})

    up = single("valkey_up", "Whether Valkey answers.", float(state is not None))
    if state is None:
        return [up]
    leases = state.leases

    def by_model(name: str, text: str, values: dict[str, float]) -> Metric:
        return gauge(name, text, {(model,): value for model, value in values.items()}, "model")

    def summed(name: str, text: str, field: str) -> Metric:
        return by_model(name, text, _sums(leases, field))

    states: dict[tuple[str, ...], float] = {(name, word): 0.0 for name in state.queued for word in STATES}
    for lease in leases:
        states[(lease.model, lease.state)] = states.get((lease.model, lease.state), 0.0) + 1
    refused = CounterMetricFamily(
        "lightcone_refused_requests", "Requests that were refused for their API key.", labels=("status",)
    )
    for status, num_refused in state.refused.items():
        refused.add_metric((status,), num_refused)
    blocks, free = _sums(leases, "num_blocks"), _sums(leases, "num_free_blocks")
    read, cached = _sums(leases, "num_prompt_tokens"), _sums(leases, "num_cached_tokens")
    return [
        up,
        gauge("workers", "Workers, by what they say of themselves.", states, "model", "status"),
        summed("seats", "Sequences that the workers of a model compute at once.", "max_num_seqs"),
        summed("running_sequences", "Sequences in the workers' steps.", "num_running"),
        summed("waiting_sequences", "Sequences that wait inside workers for a place in a step.", "num_waiting"),
        by_model("queued_requests", "Requests that no worker has taken yet.", dict(state.queued)),
        by_model("live_requests", "Requests that have not ended.", dict(state.live)),
        by_model("kv_blocks", "Blocks of the caches, 16 positions each.", blocks),
        by_model("kv_blocks_used", "Blocks that requests hold.", {name: blocks[name] - free[name] for name in blocks}),
        by_model(
            "prefix_cache_hit_ratio",
            "Part of the prompts' tokens that was found in the prefix cache, since the workers' cores began.",
            {name: cached[name] / read[name] if read[name] else 0.0 for name in read},
        ),
        summed("spill_blocks", "Blocks that the spill files have room for.", "num_spill_places"),
        summed("spill_blocks_used", "Blocks that the spill files hold.", "num_used_spill_places"),
        summed(
            "spilled_blocks", "Blocks that the spill files took, since the workers' cores began.", "num_spilled_blocks"
        ),
        summed("restored_blocks", "Blocks that were read back, since the workers' cores began.", "num_restored_blocks"),
        summed("lost_blocks", "Blocks that the spill files gave up for others, since then.", "num_lost_blocks"),
        refused,
        single(
            "reading_processes",
            "Processes that read answers: those of the web, and maintenance for batches.",
            state.num_webs,
        ),
        single("usage_records_waiting", "Records of requests that wait to be stored.", state.num_unwritten),
        single("valkey_memory_bytes", "Memory that Valkey holds.", state.memory[0]),
        single("valkey_memory_limit_bytes", "Memory that Valkey may hold, 0: no limit.", state.memory[1]),
    ]


def _sums(leases: Iterable[WorkerLease], field: str) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for lease in leases:
        sums[lease.model] += getattr(lease, field)
    return sums
