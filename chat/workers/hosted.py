"""A model of a worker host: what is known of it, its stage, and its lease while it has no worker."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chat.catalog.fingerprint import FileState
from chat.workers.memory import Resident
from chat.workers.model import ModelWorker
from chat.workers.offers import Offer
from engine.api import MemoryNeed
from engine.config import EngineConfig
from engine.loading.maker_defaults import maker_defaults
from engine.model_kind import read_purpose

RETRY_S, MAX_RETRY_S = 60.0, 600.0
"""The pause between two attempts to load a model whose files have not changed; it doubles."""
PATIENCE_S = 10.0
MAX_LOST_PAUSE_S = 30.0
STEADY_S = 600.0
"""A model that has served so long may lose its cores as if for the first time."""
LOOK_S = 2.0
Facts = tuple[dict[str, float] | None, str, list[str]]
"""Sampling defaults and kind of a model."""
NOTHING: Facts = (None, "", [])
UNLOADED, LOADING, LOADED, LEAVING, FAILED = "unloaded", "loading", "loaded", "leaving", "failed"


class Consumer(Protocol):
    """What brings tasks of models to this process."""

    def start(self, slug: str) -> None:
        """Begin to fetch the tasks of a model; return once they are fetched."""

    def stop(self, slug: str) -> None:
        """Fetch no more tasks of a model; return once none is fetched any more."""

    def has_fetched(self, slug: str) -> bool:
        """Return True while fetched tasks of the model have not been handed over."""


@dataclass
class Hosted:
    """A model of this host."""

    offer: Offer
    slug: str
    lease_id: str
    """Of the lease while it has no worker."""
    stage: str = UNLOADED
    worker: ModelWorker | None = None
    need: MemoryNeed | None = None
    reason: str = ""
    """Why it is not loaded, for the operator."""
    maker_defaults: dict[str, float] | None = None
    kind: str = ""
    """A ModelKind; empty if its files cannot be read."""
    modalities: list[str] = field(default_factory=list)
    is_wanted: bool = False
    wanted_at: float = 0.0
    used_at: float = 0.0
    ready_at: float = 0.0
    num_cores_lost: int = 0
    """Cores that died while they loaded it."""
    num_lost: int = 0
    """Workers whose cores died too often, one after the other."""
    not_before: float = 0.0
    is_noted: bool = False
    """What it needs has been asked for, after it was loaded."""
    retry_at: float = 0.0
    pause_s: float = RETRY_S
    stamp: tuple[FileState, ...] = ()
    """The state of its files when the last load began."""
    looked_at: float = 0.0

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def num_bytes(self) -> int:
        """What it takes of the budget while it has a core."""
        measured = self.worker.memory_bytes if self.worker is not None else 0
        return max(self.need.total_bytes if self.need is not None else 0, measured)

    @property
    def has_core(self) -> bool:
        return self.stage in (LOADING, LOADED, LEAVING)

    def resident(self, now: float) -> Resident:
        """Return a loaded model as it is seen now; one at work was used `now`."""
        may_leave = self.stage == LOADED and not self.offer.is_pinned and self.used_at < now
        return Resident(self.name, self.num_bytes, self.used_at, may_leave)

    def retiree(self, now: float) -> Resident:
        """Return a model that may leave although it is at work, if it has been loaded for a while; the oldest first."""
        has_served = self.stage == LOADED and now - self.ready_at > PATIENCE_S
        return Resident(self.name, self.num_bytes, self.ready_at, has_served and not self.offer.is_pinned)

    def want(self, now: float) -> None:
        """Have it loaded. The time of the first wish counts."""
        if not self.is_wanted:
            self.is_wanted, self.wanted_at = True, now

    def have_loaded(self, now: float) -> None:
        self.stage, self.ready_at, self.used_at, self.is_wanted = LOADED, now, now, False
        self.reason, self.pause_s, self.num_cores_lost = "", RETRY_S, 0

    def have_failed(self, reason: str, now: float) -> None:
        """Give up its worker; it is tried again after a pause that doubles."""
        self.stage, self.worker, self.reason = FAILED, None, reason
        self.is_wanted, self.num_cores_lost = False, 0
        self.retry_at = now + self.pause_s
        self.pause_s = min(MAX_RETRY_S, 2 * self.pause_s)

    def have_lost_cores(self, now: float) -> None:
        """Wait before it is loaded anew, the longer the more often its cores died."""
        self.reason = "its core died repeatedly"
        self.not_before = now + min(MAX_LOST_PAUSE_S, 2.0**self.num_lost - 1)
        self.num_lost += 1

    def compare(self, states: tuple[FileState, ...], now: float) -> None:
        """Compare the present states of its files with those that it was loaded from, or failed with."""
        is_changed = states != self.stamp
        if self.stage == LOADED and self.worker is not None:
            self.worker.outdated = "files" if is_changed else ""
        elif self.stage == UNLOADED and is_changed:
            self.need = None
        elif self.stage == FAILED and is_changed:
            self.stamp, self.pause_s, self.retry_at = states, RETRY_S, now + LOOK_S


def lease_of(hosted: Hosted, *, is_draining: bool = False) -> Mapping[str, Any]:
    """Return the lease of a model without a worker; one that is being appraised is loading.

    A host that is draining loads nothing, so its other models are draining too.
    """
    states = {FAILED: "failed", LOADING: "loading"}
    idle = "draining" if is_draining else "unloaded"
    need = hosted.need
    return {
        "model": hosted.name,
        "state": states.get(hosted.stage, idle),
        "beat_at": time.time(),
        "phase": "reading what it needs",
        "fraction": "0",
        "reason": hosted.reason,
        "seats": hosted.offer.config.max_num_seqs,
        "max_model_len": need.context if need is not None else 0,
        "memory_bytes": need.total_bytes if need is not None else 0,
        "maker_defaults": json.dumps(hosted.maker_defaults),
        "kind": hosted.kind,
        "modalities": json.dumps(hosted.modalities),
    }


def facts_of(config: EngineConfig) -> Facts:
    """Return sampling defaults, kind and modalities of a model, as its files say; NOTHING if they cannot be read."""
    try:
        purpose = read_purpose(config.model_path, config.projector)
        return maker_defaults(config.model_path), str(purpose.kind), purpose.modalities
    except Exception:
        # Files are not trusted to be what they seem; loading says what is wrong with them.
        return NOTHING
