"""What a worker host does next: the model that it loads, or the models that make room for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from chat.workers.hosted import LOADED, LOADING, PATIENCE_S, UNLOADED, Hosted
from chat.workers.memory import gigabytes, room_made


@dataclass(frozen=True, slots=True)
class Placement:
    """What comes next: one model is loaded, or what it needs is read first, or others leave. Nothing: all wait."""

    load: Hosted | None = None
    appraise: Hosted | None = None
    leaving: Sequence[str] = ()
    waiting: str = ""
    """The model that they make room for."""


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a host. `budget`: bytes."""

    budget: int
    first: str
    """The model of the settings, which may be loaded before it is known what it needs,"""
    is_bounded: bool
    """unless somebody has set the budget."""

    def placement(self, hosted: Collection[Hosted], gone: Collection[Hosted], now: float) -> Placement:
        """Return what to do for the model that has waited longest and has room, or can be given some.

        A model that waits for memory gets the reason. `gone`: models that have yet to leave.
        """
        everyone = (*hosted, *gone)
        if any(one.stage == LOADING for one in everyone):
            return Placement()
        with_core = [one for one in everyone if one.has_core]
        wanted = [one for one in hosted if one.is_wanted and one.stage == UNLOADED and now >= one.not_before]
        for one in sorted(wanted, key=lambda one: one.wanted_at):
            found = self._placement_of(one, with_core, now)
            if found is not None:
                return found
            if self._can_never_fit(one, hosted):
                return Placement(appraise=one)
            busy = ", ".join(other.name for other in with_core)
            num_bytes = one.need.total_bytes if one.need is not None else 0
            one.reason = f"waits for memory: {gigabytes(num_bytes)} are needed beside {busy}"
        return Placement()

    def _placement_of(self, one: Hosted, with_core: Sequence[Hosted], now: float) -> Placement | None:
        """Return what to do for one model; None if it has to wait."""
        if one.need is None and (with_core or one.name != self.first or self.is_bounded):
            return Placement(appraise=one)
        num_bytes = one.need.total_bytes if one.need is not None else 0
        if room_made(num_bytes, self.budget, [other.resident(now) for other in with_core]) == []:
            return Placement(load=one)
        staying = [other.resident(now) for other in with_core if other.stage == LOADED]
        leaving = room_made(num_bytes, self.budget, staying)
        if leaving is None and now - one.wanted_at > PATIENCE_S:
            leaving = room_made(num_bytes, self.budget, [other.retiree(now) for other in with_core])
        if leaving is None:
            return None
        return Placement(leaving=leaving, waiting=one.name)  # there is room once the last of them has left

    def _can_never_fit(self, one: Hosted, hosted: Collection[Hosted]) -> bool:
        return one.need is not None and bool(one.need.refusal(self.budget - pinned_bytes(hosted)))


def pinned_bytes(hosted: Collection[Hosted]) -> int:
    """Return the memory of pinned models that are loaded."""
    return sum(one.num_bytes for one in hosted if one.has_core and one.offer.is_pinned)
