"""What the live pages show: workers, models and live requests at one moment, from Valkey and the catalogue.

It takes four round trips to Valkey and two queries, whatever number of requests is live: of each model at most MAX_RUNS
ids are fetched, of all together at most MAX_RUNS requests are read, and sums come from the sizes of sets.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from chat.access.models import Project
from chat.catalog.models import ServedModel
from chat.relay.state.hosts import HostReport, host_read
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.workers import STATE_ORDER, WorkerLease, lease_read
from chat.relay.valkey import Answers

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_HOSTS = 50
MAX_LEASES = 400
MAX_MODELS = 200
MAX_RUNS = 200
LOST_S = 5.0
"""Without a report for so long a host is lost."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A request that has not ended."""

    run_id: str
    model: str
    project_id: int
    org_id: int
    project: str | None
    """None: of another organisation than those that the viewer sees."""
    worker_id: str
    """The lease that computes it; empty while it waits."""
    state: str
    """queued or running"""
    since: float
    """When it arrived, in unix seconds."""


@dataclass(frozen=True, slots=True)
class LiveModel:
    """A model at one worker, or, without a worker, in the catalogue alone."""

    name: str
    pk: int | None
    """Of its row in the catalogue; None for a model that only a worker's settings name."""
    node: str
    """Of the worker; empty: no worker has it."""
    state: str
    phase: str = ""
    fraction: float = 0.0
    loaded_bytes: int = 0
    total_bytes: int = 0
    seconds_left: float = 0.0
    reason: str = ""
    is_pinned: bool = False
    is_enabled: bool = True
    num_running: int = 0
    """Sequences in the steps of the core."""
    num_waiting: int = 0
    """Sequences that wait inside the worker."""
    num_live: int = 0
    """Requests that the worker has taken."""
    max_num_seqs: int = 0
    max_model_len: int = 0
    memory_bytes: int = 0
    cache_used: float = 0.0
    """0..1 of the cache's blocks, which requests hold."""
    num_blocks: int = 0
    hit_rate: float = 0.0
    """0..1 of the prompts' tokens since the core began, which were in the prefix cache."""
    input_per_s: float = 0.0
    output_per_s: float = 0.0
    step_ms: float = 0.0
    num_preemptions: int = 0
    started_at: float = 0.0
    settings: dict[str, str] = field(default_factory=dict)
    differing: tuple[tuple[str, str, str], ...] = ()
    """Settings of the catalogue that the running core does not have: name, running, wanted."""
    outdated: str = ""
    """`settings` or `files` that have changed since it was loaded; empty: nothing."""
    lines: tuple[str, ...] = ()
    """The last log lines about loading and unloading it."""


@dataclass(frozen=True, slots=True)
class LiveHost:
    """A worker with its models."""

    node: str
    state: str
    """ready, draining or lost"""
    age_s: float
    """Since its last heartbeat."""
    report: HostReport
    models: tuple[LiveModel, ...]

    @property
    def num_live(self) -> int:
        return sum(model.num_live for model in self.models)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the live pages show of one moment."""

    at: float
    """Unix seconds."""
    hosts: tuple[LiveHost, ...]
    unhosted: tuple[LiveModel, ...]
    """Models of the catalogue that no worker has."""
    queued: Mapping[str, int]
    """Requests that no worker has taken, by model, where there are any."""
    live: Mapping[str, int]
    """Requests that have not ended, by model, where there are any."""
    runs: tuple[LiveRun, ...]
    """The oldest of them."""
    projects: tuple[tuple[str | None, int, int], ...]
    """Name of a project and how many of `runs` are computed and wait. None: those of other organisations."""
    num_left_out: int
    """Live requests beyond `runs`."""

    def data(self) -> dict[str, Any]:
        """Return the snapshot for JSON."""
        return asdict(self)

    def seen_by(self, shows: Callable[[int, int], bool]) -> Snapshot:
        """Return it without names of projects but those that `shows` is true of, by ids of organisation and project."""
        runs = tuple(
            run if shows(run.org_id, run.project_id) else replace(run, project=None, project_id=0, org_id=0)
            for run in self.runs
        )
        return replace(self, runs=runs, projects=_by_project(runs))

    def models(self) -> list[LiveModel]:
        return [*(model for host in self.hosts for model in host.models), *self.unhosted]


def snapshot_read(client: Answers, keys: Keys, *, now: float | None = None) -> Snapshot:
    """Read a snapshot with a blocking client. Raises redis.RedisError, OSError and django.db.Error."""
    now = time.time() if now is None else now
    rows = {row.name: row for row in ServedModel.objects.order_by("name")[:MAX_MODELS]}
    reports, leases = _workers_read(client, keys)
    names = sorted({lease.model for lease in leases} | set(rows))[:MAX_MODELS]
    queued, live, run_ids = _counts_read(client, keys, names, now)
    chosen = sorted(run_ids)[:MAX_RUNS]
    runs = _named(_runs_read(client, keys, chosen))
    hosts = _hosts(reports, leases, rows, now)
    hosted = {model.name for host in hosts for model in host.models}
    unhosted = [_without_worker(row) for name, row in rows.items() if name not in hosted]
    return Snapshot(
        at=now,
        hosts=tuple(hosts),
        unhosted=tuple(unhosted),
        queued={name: number for name, number in queued.items() if number},
        live={name: number for name, number in live.items() if number},
        runs=tuple(runs),
        projects=_by_project(runs),
        num_left_out=max(0, sum(live.values()) - len(runs)),
    )


def _workers_read(client: Answers, keys: Keys) -> tuple[dict[str, HostReport], list[WorkerLease]]:
    pipe = client.pipeline(transaction=False)
    pipe.zrevrange(keys.hosts, 0, MAX_HOSTS - 1)
    pipe.smembers(keys.workers)
    raw_nodes, raw_ids = pipe.execute()
    nodes = sorted(raw.decode() for raw in raw_nodes)
    lease_ids = sorted(raw.decode() for raw in raw_ids)[:MAX_LEASES]
    pipe = client.pipeline(transaction=False)
    for node in nodes:
        pipe.hgetall(keys.host(node))
    for lease_id in lease_ids:
        pipe.hgetall(keys.worker(lease_id))
    answers = pipe.execute()
    reports = _each_read(host_read, zip(nodes, answers, strict=False))
    found = _each_read(_lease_read, zip(lease_ids, answers[len(nodes) :], strict=True))
    return {report.node: report for report in reports}, found


def _each_read(read: Callable[[str, Any], T], found: Iterable[tuple[str, Any]]) -> list[T]:
    """Read what is there, without what cannot be read, as of a worker of another version."""
    rows = []
    for name, raw in found:
        try:
            if raw:
                rows.append(read(name, raw))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s is left out of live pages: %r", name, error)
    return rows


def _lease_read(lease_id: str, raw: Mapping[bytes, bytes]) -> WorkerLease:
    lease = lease_read(lease_id, raw)
    if lease.state not in STATE_ORDER:
        raise ValueError(f"its state is {lease.state[:40]!r}")
    return lease


def _counts_read(
    client: Answers, keys: Keys, names: Sequence[str], now: float
) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Return the queued and live requests by model, and ids of live ones."""
    now_ms = int(now * 1000)
    pipe = client.pipeline(transaction=False)
    for name in names:
        slug = model_slug(name)
        pipe.llen(keys.tasks(slug))
        pipe.zcount(keys.model_live(slug), now_ms, "+inf")
        pipe.zrangebyscore(keys.model_live(slug), now_ms, "+inf", start=0, num=MAX_RUNS)
    answers = pipe.execute() if names else []
    queued = dict(zip(names, answers[0::3], strict=True))
    live = dict(zip(names, answers[1::3], strict=True))
    return queued, live, [raw.decode() for ids in answers[2::3] for raw in ids]


def _runs_read(client: Answers, keys: Keys, run_ids: Sequence[str]) -> list[LiveRun]:
    pipe = client.pipeline(transaction=False)
    for run_id in run_ids:
        pipe.hmget(keys.meta(run_id), "state", "worker", "about")
    answers = pipe.execute() if run_ids else []
    found = zip(run_ids, answers, strict=True)
    return _each_read(run_read, [(run_id, fields) for run_id, fields in found if fields[0] in (b"queued", b"running")])


def run_read(run_id: str, fields: Sequence[bytes | None]) -> LiveRun:
    """Return a live run from the fields state, worker and about of its meta. Its project has no name yet."""
    state, worker, about = ((field or b"").decode() for field in fields)
    known = json.loads(about or "{}")
    return LiveRun(
        run_id=run_id,
        model=str(known.get("model", "")),
        project_id=int(known.get("project_id") or 0),
        org_id=0,
        project="",
        worker_id=worker,
        state=state,
        since=float(known.get("arrived_at") or 0),
    )


def _named(runs: Sequence[LiveRun]) -> list[LiveRun]:
    """Return the runs with the names of their projects."""
    ids = {run.project_id for run in runs}
    rows = Project.objects.filter(pk__in=ids).values_list("pk", "org_id", "name") if ids else ()
    known = {pk: {"org_id": org_id, "project": name} for pk, org_id, name in rows}
    return [replace(run, **known.get(run.project_id, {})) for run in runs]


def _by_project(runs: Iterable[LiveRun]) -> tuple[tuple[str | None, int, int], ...]:
    running, waiting = Counter[str | None](), Counter[str | None]()
    for run in runs:
        (running if run.state == "running" else waiting)[run.project] += 1
    names = sorted({*running, *waiting}, key=lambda name: (-running[name] - waiting[name], name or ""))
    return tuple((name, running[name], waiting[name]) for name in names)


def _hosts(
    reports: Mapping[str, HostReport], leases: Iterable[WorkerLease], rows: Mapping[str, ServedModel], now: float
) -> list[LiveHost]:
    """Return the hosts that report, and those of leases whose host does not, as of an earlier version."""
    by_node: dict[str, list[WorkerLease]] = {node: [] for node in reports}
    for lease in leases:
        by_node.setdefault(lease.worker_id.partition("~")[0], []).append(lease)
    hosts = []
    for node, its_leases in sorted(by_node.items()):
        report = reports.get(node) or HostReport(node, beat_at=max(lease.beat_at for lease in its_leases))
        age_s = max(0.0, now - report.beat_at) if report.beat_at else 0.0
        state = "lost" if age_s > LOST_S and not its_leases else "draining" if report.is_draining else "ready"
        ordered = sorted(its_leases, key=lambda lease: (lease.model, STATE_ORDER.index(lease.state)))
        models = tuple(_of_lease(lease, rows.get(lease.model), report) for lease in ordered)
        hosts.append(LiveHost(node, state, age_s, report, models))
    return hosts


def _of_lease(lease: WorkerLease, row: ServedModel | None, report: HostReport) -> LiveModel:
    used = 1 - lease.num_free_blocks / lease.num_blocks if lease.num_blocks else 0.0
    is_leaving = lease.state == "unloaded" and lease.num_live > 0
    return LiveModel(
        name=lease.model,
        pk=row.pk if row else None,
        node=report.node,
        state="draining" if is_leaving else lease.state,
        phase=lease.phase if lease.state == "loading" else "",
        fraction=lease.fraction if lease.state == "loading" else 0.0,
        loaded_bytes=int(lease.total_bytes * lease.fraction),
        total_bytes=lease.total_bytes,
        seconds_left=lease.seconds_left if lease.state == "loading" else 0.0,
        reason=lease.reason,
        is_pinned=bool(row and row.pinned),
        is_enabled=bool(row is None or row.enabled),
        num_running=lease.num_running,
        num_waiting=lease.num_waiting,
        num_live=lease.num_live,
        max_num_seqs=lease.max_num_seqs,
        max_model_len=lease.max_model_len,
        memory_bytes=lease.memory_bytes,
        cache_used=used,
        num_blocks=lease.num_blocks,
        hit_rate=lease.num_cached_tokens / lease.num_prompt_tokens if lease.num_prompt_tokens else 0.0,
        input_per_s=lease.input_per_s,
        output_per_s=lease.output_per_s,
        step_ms=lease.step_ms,
        num_preemptions=lease.num_preemptions,
        started_at=lease.started_at,
        settings=lease.settings or {},
        differing=differing_settings(lease, row),
        outdated=lease.outdated,
        lines=tuple(report.model_lines.get(lease.model, ())),
    )


def differing_settings(lease: WorkerLease, row: ServedModel | None) -> tuple[tuple[str, str, str], ...]:
    """Return what the catalogue says of a model and its running core does not have: name, running, wanted.

    A row without a context leaves it to the worker, so that no context differs from it.
    """
    if row is None or lease.settings is None:
        return ()
    wanted = {"max_model_len": str(row.max_model_len or "")}
    running = lease.settings
    return tuple(
        (name, running.get(name, ""), value) for name, value in wanted.items() if value and running.get(name) != value
    )


def _without_worker(row: ServedModel) -> LiveModel:
    return LiveModel(name=row.name, pk=row.pk, node="", state="unloaded", is_pinned=row.pinned, is_enabled=row.enabled)
