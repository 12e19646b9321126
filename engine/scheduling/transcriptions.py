"""The requests of a core that writes down speech: which goes on next.

Of each tenant a few go on side by side, in the order of priority and arrival; the others wait, as each holds the input
of its whole sound. So do those for which the core has no room. The tenant that has had the least time is next, and its
requests take turns. Pure Python.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.messages import AddSequence, CoreStats, DefineMedia

SIDE_BY_SIDE = 4
"""Requests of a tenant that go on at once."""
MOST_BEGUN, MOST_BEGUN_S = 6, 7_200
"""Requests of a core that go on at once, and the seconds of their sounds; one that is longer goes on alone."""
SHORT_S = 60
"""A sound that goes on beside any others, as it takes little."""


@dataclass(slots=True, eq=False)
class Transcription:
    """A request with its sound."""

    request: AddSequence
    sound: DefineMedia
    seconds: float
    arrival: int = 0
    turn: int = 0
    """When it last went on."""
    has_begun: bool = False

    @property
    def seq_id(self) -> int:
        return self.request.seq_id


class Transcriptions:
    """The owner of a core's requests."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[Transcription]] = {}
        self._spent_s: dict[str, float] = {}
        """Of the tenants with requests; one that comes begins where the least of them stands."""
        self._tenants: dict[int, str] = {}
        self._count = 0
        self._num_steps = 0

    def add(self, one: Transcription) -> None:
        """Add a request. Raises RequestError without options of speech."""
        if one.request.speech is None:
            raise RequestError(ErrorCode.INVALID_VALUE, "this model writes down speech and does nothing else", "model")
        tenant = one.request.tenant
        self._count += 1
        one.arrival = self._count
        self._spent_s.setdefault(tenant, min(self._spent_s.values(), default=0.0))
        held = self._by_tenant.setdefault(tenant, [])
        held.append(one)
        held.sort(key=lambda other: (other.request.priority, other.arrival))
        self._tenants[one.seq_id] = tenant

    def remove(self, seq_id: int) -> bool:
        """Drop a request that has ended or was aborted; False if it is unknown."""
        tenant = self._tenants.pop(seq_id, None)
        if tenant is None:
            return False
        held = [other for other in self._by_tenant[tenant] if other.seq_id != seq_id]
        self._by_tenant[tenant] = held
        if not held:
            del self._by_tenant[tenant], self._spent_s[tenant]
        return True

    def next(self) -> Transcription | None:
        """Return the request whose turn it is."""
        room_s = self._room_s()
        for tenant in sorted(self._by_tenant, key=lambda tenant: self._spent_s[tenant]):
            held = self._by_tenant[tenant]
            ready = [one for one in held if one.has_begun]
            waiting = next((one for one in held if not one.has_begun), None)
            if waiting is not None and len(ready) < SIDE_BY_SIDE:
                if waiting.seconds <= room_s or (room_s >= 0 and waiting.seconds <= SHORT_S):
                    ready.append(waiting)
                else:
                    room_s = min(room_s, 0)  # kept for the tenant that has had less
            if ready:
                return self._go_on(tenant, min(ready, key=lambda one: one.turn))
        return None

    def _go_on(self, tenant: str, chosen: Transcription) -> Transcription:
        """Give a request its turn. A tenant that has waited for room begins where the least of the others stands."""
        going = {name for name, held in self._by_tenant.items() if any(one.has_begun for one in held)}
        if going and tenant not in going:
            self._spent_s[tenant] = max(self._spent_s[tenant], min(self._spent_s[name] for name in going))
        self._num_steps += 1
        chosen.turn, chosen.has_begun = self._num_steps, True
        return chosen

    def _room_s(self) -> float:
        """Return the seconds that a sound may have that begins now, if it is not short; below 0 if none may begin."""
        begun_s = [one.seconds for held in self._by_tenant.values() for one in held if one.has_begun]
        if len(begun_s) >= MOST_BEGUN:
            return -1.0
        long_s = sum(seconds for seconds in begun_s if seconds > SHORT_S)
        return max(0.0, MOST_BEGUN_S - long_s) if long_s else math.inf

    def charge(self, one: Transcription, seconds: float) -> None:
        """Count the time that a request had."""
        tenant = one.request.tenant
        if tenant in self._spent_s:
            self._spent_s[tenant] += seconds

    def seq_ids(self) -> set[int]:
        return set(self._tenants)

    def stats(self) -> CoreStats:
        begun = sum(one.has_begun for held in self._by_tenant.values() for one in held)
        return CoreStats(
            num_running=begun,
            num_waiting=len(self._tenants) - begun,
            num_free_blocks=0,
            num_blocks=0,
            num_steps=self._num_steps,
            num_prompt_tokens=0,
            num_cached_tokens=0,
            num_preemptions=0,
        )

    def check_integrity(self) -> str:
        """Verify the counts of requests; return the first error, or ''."""
        if sum(map(len, self._by_tenant.values())) != len(self._tenants):
            return "the counts of requests differ"
        return "" if self._spent_s.keys() == self._by_tenant.keys() else "a tenant without requests has a share"
