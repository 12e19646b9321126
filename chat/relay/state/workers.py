"""The leases of workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chat.relay.state.keys import Keys
from chat.relay.valkey import Answers

CORE_COUNTERS = (
    *("num_running", "num_waiting", "num_blocks", "num_free_blocks", "num_prompt_tokens", "num_cached_tokens"),
    *("num_spill_places", "num_used_spill_places", "num_spilled_blocks", "num_restored_blocks", "num_lost_blocks"),
    *("num_steps", "num_preemptions", "num_generated_tokens"),
)
"""Those that a worker has from its core, by the names of the fields of `CoreStats`."""
COUNTERS = ("max_model_len", "num_live", "longest_token_chars", "memory_bytes", "total_bytes", *CORE_COUNTERS)
MEASURES = ("started_at", "beat_at", "input_per_s", "output_per_s", "step_ms", "seconds_left")
"""Workers of an earlier version do not report all of them."""
STATE_ORDER = ("ready", "loading", "unloaded", "draining", "failed")
"""Best first. Clients see the state of a model's best worker. One that is `unloaded` loads the model on demand."""


@dataclass(frozen=True, slots=True)
class WorkerLease:
    worker_id: str
    model: str
    state: str
    """unloaded, loading, ready, draining or failed"""
    phase: str
    fraction: float
    """The progress of loading, 0..1."""
    reason: str
    """A text for the operator."""
    max_num_seqs: int
    max_model_len: int
    """0 until it is known."""
    num_live: int
    num_running: int
    num_waiting: int
    longest_token_chars: int = 0
    """0 until it is known."""
    memory_bytes: int = 0
    """Of the worker's core; 0 until it is measured."""
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_prompt_tokens: int = 0
    """Counted since the worker's core began, like `num_cached_tokens`, which are part of them."""
    num_cached_tokens: int = 0
    num_spill_places: int = 0
    """Blocks that the spill file has room for; 0 without one."""
    num_used_spill_places: int = 0
    num_spilled_blocks: int = 0
    """Counted since the worker's core began, like the next two."""
    num_restored_blocks: int = 0
    num_lost_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_generated_tokens: int = 0
    total_bytes: int = 0
    """Of the model's files."""
    started_at: float = 0.0
    """When its load began, in unix seconds."""
    beat_at: float = 0.0
    """When the lease was last written, by the worker's clock."""
    input_per_s: float = 0.0
    """Tokens of prompts that were computed in the last second, like the next two."""
    output_per_s: float = 0.0
    step_ms: float = 0.0
    """The mean time of a step; 0 if none was computed."""
    seconds_left: float = 0.0
    """Of loading, as its pace so far says; 0 if that is not known."""
    settings: dict[str, str] | None = None
    """What it was loaded with; None without a core."""
    outdated: str = ""
    """What has changed since it was loaded: `settings` or `files`; empty: nothing."""
    maker_defaults: dict[str, float] | None = None
    """Sampling values of the model's files, by the names of request fields; None until they are read."""
    computed_by: str = ""
    """Which form each part of the model runs in; empty until it is loaded."""
    kind: str = ""
    """A ModelKind; empty until the model is loaded."""
    modalities: list[str] | None = None
    """What messages may have beside text: "image", "video"; None until the model's files are read."""


@dataclass(frozen=True, slots=True)
class ModelCondition:
    """The condition of a model, by the lease of its best worker, whose fields have the same names."""

    state: str = "unloaded"
    reason: str = ""
    max_model_len: int = 0
    maker_defaults: dict[str, float] | None = None
    computed_by: str = ""
    memory_bytes: int = 0
    kind: str = ""
    modalities: list[str] | None = None
    phase: str = ""
    fraction: float = 0.0


UNLOADED = ModelCondition()


def model_conditions(leases: Iterable[WorkerLease]) -> dict[str, ModelCondition]:
    """Return the condition of each model that has a worker."""
    best: dict[str, WorkerLease] = {}
    for lease in sorted(leases, key=lambda lease: STATE_ORDER.index(lease.state)):
        best.setdefault(lease.model, lease)
    return {name: _condition(lease) for name, lease in best.items()}


def _condition(lease: WorkerLease) -> ModelCondition:
    reason = f"{lease.phase} {lease.fraction:.0%}" if lease.state == "loading" else lease.reason
    facts = (lease.max_model_len, lease.maker_defaults, lease.computed_by, lease.memory_bytes)
    kind = (lease.kind, lease.modalities)
    progress = (lease.phase, lease.fraction) if lease.state == "loading" else ()
    return ModelCondition(lease.state, reason, *facts, *kind, *progress)


async def worker_leases(client: Answers, keys: Keys) -> list[WorkerLease]:
    """Return the leases of all live workers. Raises redis.RedisError."""
    worker_ids = sorted(raw.decode() for raw in await client.smembers(keys.workers))
    pipe = client.pipeline(transaction=False)
    for worker_id in worker_ids:
        pipe.hgetall(keys.worker(worker_id))
    answers = await pipe.execute() if worker_ids else []
    return [lease_read(worker_id, raw) for worker_id, raw in zip(worker_ids, answers, strict=True) if raw]


def lease_read(worker_id: str, raw: Mapping[bytes, bytes]) -> WorkerLease:
    """Return a lease from the fields of its hash."""
    fields = {name.decode(): value.decode() for name, value in raw.items()}
    measured: dict[str, Any] = {name: float(fields.get(name, 0)) for name in MEASURES}
    return WorkerLease(
        worker_id=worker_id,
        model=fields["model"],
        state=fields["state"],
        phase=fields["phase"],
        fraction=float(fields["fraction"]),
        reason=fields["reason"],
        max_num_seqs=int(fields["seats"]),
        maker_defaults=json.loads(fields.get("maker_defaults", "null")),
        computed_by=fields.get("computed_by", ""),
        kind=fields.get("kind", ""),
        modalities=json.loads(fields.get("modalities", "null")),
        settings=json.loads(fields.get("settings", "null")),
        outdated=fields.get("outdated", ""),
        **{name: int(fields.get(name, 0)) for name in COUNTERS},
        **measured,
    )
