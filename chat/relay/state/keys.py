"""Run ids, and names in Valkey. Every name starts with the deployment id, so that two installations may share a server.

Run ids are UUIDs of version 7 (RFC 9562), whose first 48 bits are the unix time in milliseconds. Sorting by run id is
sorting by time, so one primary key serves look-up, newest-first paging and ranges of time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

QUEUE_PREFIX = "model."


def run_id_create(*, at_s: float | None = None) -> str:
    """Return a new run id as 32 hex digits. `at_s`: unix seconds, now when absent."""
    milliseconds = int((time.time() if at_s is None else at_s) * 1000)
    return UUID(
        int=(milliseconds << 80) | (0x7 << 76) | (secrets.randbits(12) << 64) | (0b10 << 62) | secrets.randbits(62)
    ).hex


def run_id_floor(at: datetime) -> UUID:
    """Return the smallest value that a run id of this instant, or a later one, can have."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def model_slug(model: str) -> str:
    """Return the slug of a model's name, for its keys and its queue: a-z, 0-9 and dashes. No two names share one."""
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return slug if slug == model else f"{slug}-{hashlib.sha256(model.encode()).hexdigest()[:8]}".strip("-")


def queue_of(slug: str) -> str:
    """Return the Celery queue from which the workers of a model take requests."""
    return f"{QUEUE_PREFIX}{slug}"


def slug_of(queue: str) -> str:
    """Return the slug of the model whose queue this is."""
    return queue.removeprefix(QUEUE_PREFIX)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one deployment."""

    deployment: str

    def log(self, run_id: str) -> str:
        """Stream: the run's events; entry id `<attempt>-<last position>`."""
        return f"{self.deployment}:run:{run_id}:log"

    def meta(self, run_id: str) -> str:
        """Hash: state, attempt, worker, stop flag, policy, watching web processes; what is empty or zero is absent."""
        return f"{self.deployment}:run:{run_id}:meta"

    def request(self, run_id: str) -> str:
        """String: the packed GenerationRequest."""
        return f"{self.deployment}:run:{run_id}:req"

    def resume_context(self, run_id: str) -> str:
        """String: the resume context of the run (JSON)."""
        return f"{self.deployment}:run:{run_id}:kept"

    def public(self, project_id: int, public_id: str) -> str:
        """String: the run id of a public id of a project."""
        return f"{self.deployment}:pub:{project_id}:{public_id}"

    @property
    def celery_prefix(self) -> str:
        """The prefix of the keys of Celery's transport (settings.CELERY_BROKER_TRANSPORT_OPTIONS)."""
        return f"{self.deployment}:celery:"

    def tasks(self, slug: str) -> str:
        """List: tasks that wait for a worker of the model, as Celery's transport keeps them; the oldest is the last."""
        return self.celery_prefix + queue_of(slug)

    def demand(self, slug: str) -> str:
        """List with one entry if runs wait for the model and no worker loads it; the worker that takes it does."""
        return f"{self.deployment}:demand:{slug}"

    @property
    def refused(self) -> str:
        """Hash: how many requests were refused for their key, by status."""
        return f"{self.deployment}:refused"

    @property
    def workers(self) -> str:
        """Set of worker ids that have run and are not reaped yet."""
        return f"{self.deployment}:workers"

    @property
    def worker_prefix(self) -> str:
        return f"{self.deployment}:worker:"

    def worker(self, worker_id: str) -> str:
        """Hash with a time to live, the lease: state, progress, `seats` (max_num_seqs), counters."""
        return self.worker_prefix + worker_id

    @property
    def hosts(self) -> str:
        """Sorted set of worker hosts by their last report (ms)."""
        return f"{self.deployment}:hosts"

    def host(self, node: str) -> str:
        """Hash with a time to live: what a worker host reports of itself."""
        return f"{self.deployment}:host:{node}"

    @property
    def alerts(self) -> str:
        """String with a time to live: which maintenance process looks for alerts."""
        return f"{self.deployment}:alerts"

    def worker_runs(self, worker_id: str) -> str:
        """Set of run ids that the worker has claimed."""
        return f"{self.deployment}:worker:{worker_id}:runs"

    @property
    def webs(self) -> str:
        """Set of ids of web processes that have run and are not reaped yet."""
        return f"{self.deployment}:webs"

    def web(self, web_id: str) -> str:
        """String with a time to live, the lease: the process's channel."""
        return f"{self.deployment}:web:{web_id}"

    def web_runs(self, web_id: str) -> str:
        """Set of run ids that the process reads."""
        return f"{self.deployment}:web:{web_id}:runs"

    def model_workers(self, slug: str) -> str:
        """Set of ids of workers of the model; the leases of some may have lapsed."""
        return f"{self.deployment}:model:{slug}:workers"

    def model_live(self, slug: str) -> str:
        """Sorted set of the model's live runs by the end of their lease (ms)."""
        return f"{self.deployment}:model:{slug}:live"

    def tenant_live(self, slug: str, tenant: str) -> str:
        """Sorted set of a tenant's live runs at the model by the end of their lease (ms)."""
        return f"{self.deployment}:model:{slug}:live:{tenant}"

    def model_tenants(self, slug: str) -> str:
        """Sorted set of tenants with runs of the model, by the lease end that their last run began with (ms)."""
        return f"{self.deployment}:model:{slug}:tenants"

    @property
    def queued(self) -> str:
        """Sorted set of runs that no worker has claimed, by the time of their task (ms)."""
        return f"{self.deployment}:queued"

    @property
    def unread(self) -> str:
        """Sorted set of detached runs without a reader, by the end of their grace time (ms)."""
        return f"{self.deployment}:unread"

    @property
    def configuration_epoch(self) -> str:
        """Counter of changes to keys, projects and models (chat.access.configuration)."""
        return f"{self.deployment}:configuration:epoch"

    @property
    def jobs(self) -> str:
        """String with a time to live: which maintenance worker does jobs on stored models."""
        return f"{self.deployment}:jobs"

    @property
    def reaper(self) -> str:
        return f"{self.deployment}:reaper"

    @property
    def usage(self) -> str:
        """Stream of terminal records; consumer group `writer`."""
        return f"{self.deployment}:usage"

    @property
    def usage_writer(self) -> str:
        return f"{self.deployment}:usage:writer"

    @property
    def memory(self) -> str:
        """String with a short time to live: Valkey's memory was enough for new runs."""
        return f"{self.deployment}:memory"

    def meter(self, scope: str) -> str:
        """String: what is used of the rates of a scope, packed (meters.lua)."""
        return f"{self.deployment}:admit:{scope}:meter"

    def admit_live(self, scope: str) -> str:
        """Sorted set of a scope's live runs by the end of their lease (ms)."""
        return f"{self.deployment}:admit:{scope}:live"

    def admit_live_at(self, scope: str, slug: str) -> str:
        """Sorted set of a scope's live runs at a model by the end of their lease (ms)."""
        return f"{self.deployment}:admit:{scope}:live:{slug}"

    def budget(self, budget_id: int, window: str) -> str:
        """Hash: what is spent and reserved of a hard budget in a window (budgets.lua)."""
        return f"{self.deployment}:budget:{budget_id}:{window}"

    @property
    def run_prefix(self) -> str:
        return f"{self.deployment}:run:"
