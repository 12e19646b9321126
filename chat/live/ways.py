"""The way of a model's name: which models a request for it may get, how often, and which it would get now."""

from __future__ import annotations

from dataclasses import dataclass

from chat.catalog.models import ModelAdapter, ServedModel, WeightedAlias
from chat.live.snapshot import Snapshot
from chat.relay.state.workers import STATE_ORDER

MAX_NAME_CHARS = 200
AWAY = frozenset({"draining", "failed", "none"})
"""States in which a model's fallback answers, if it has one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model that a name leads to, and who answers for it now."""

    model: str
    share: float
    """0..1 of the requests."""
    state: str
    """Of its best worker; `none`: no worker has it."""
    is_enabled: bool
    answered_by: str
    """Itself, or one of its fallbacks; empty: nobody, so that requests are refused."""
    fallbacks: tuple[tuple[str, str], ...]
    """The names and states of its fallbacks, in order."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a name is, and the models that it leads to."""

    name: str
    kind: str
    """default, model, alias, adapter, weighted or unknown"""
    targets: tuple[Target, ...] = ()


def way_of(name: str, snapshot: Snapshot | None) -> Way:
    """Return the way of a name; empty: of requests without one. Without a snapshot no model has a worker."""
    rows = {row.name: row for row in ServedModel.objects.all()}
    states = _states(snapshot)
    kind, weights = _kind_of(name, rows)
    total = sum(weights.values())
    targets = tuple(_target(model, weight / total, rows, states) for model, weight in weights.items())
    return Way(name, kind, targets)


def _kind_of(name: str, rows: dict[str, ServedModel]) -> tuple[str, dict[str, int]]:
    """Return what a name is and the weights of its models, as requests find them (chat.catalog.services)."""
    enabled = [row for row in rows.values() if row.enabled]
    if not name:
        return "default", {row.name: 1 for row in enabled if row.is_default}
    weighted = WeightedAlias.objects.filter(name=name).first()
    if weighted is not None:
        usable = {one["model"]: one["weight"] for one in weighted.targets if one["model"] in rows}
        return "weighted", {model: weight for model, weight in usable.items() if rows[model].enabled}
    if name in rows:
        return "model", {name: 1}
    for row in enabled:
        if name in row.aliases:
            return "alias", {row.name: 1}
    model, _, adapter = name.rpartition(":")
    for row in enabled:
        is_named = model in (row.name, *row.aliases)
        if is_named and ModelAdapter.objects.filter(model=row, name=adapter, enabled=True).exists():
            return "adapter", {row.name: 1}
    return "unknown", {}


def _target(model: str, share: float, rows: dict[str, ServedModel], states: dict[str, str]) -> Target:
    row = rows[model]
    chain: list[str] = []
    following = row.fallback
    while following and following in rows and following not in (model, *chain):
        chain.append(following)
        following = rows[following].fallback
    fallbacks = tuple((one, states.get(one, "none")) for one in chain if rows[one].enabled)
    state = states.get(model, "none")
    answered_by = ""
    if row.enabled:
        answered_by = next((one for one, its in ((model, state), *fallbacks) if its not in AWAY), "")
    return Target(model, share, state, row.enabled, answered_by, fallbacks)


def _states(snapshot: Snapshot | None) -> dict[str, str]:
    """Return the state of the best worker of each model that has one."""
    states: dict[str, str] = {}
    for host in snapshot.hosts if snapshot else ():
        for model in host.models:
            known = states.get(model.name)
            if known is None or STATE_ORDER.index(model.state) < STATE_ORDER.index(known):
                states[model.name] = model.state
    return states
