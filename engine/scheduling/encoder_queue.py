"""The items of media that wait to be encoded: which come next, and which of them together.

The better priority comes first, then the tenant of which fewer tokens were encoded while it had items, then the one
whose turn is longer ago, then the earlier arrival. Items of one form share a step of the encoder, taken in turns from
all tenants, up to a budget of tokens; one that is larger is alone in its step. Pure Python.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import islice
from operator import attrgetter


@dataclass(slots=True, eq=False)
class WaitingItem:
    """An item of media that a sequence needs."""

    key: str
    tenant: str
    priority: int
    num_tokens: int
    form: Hashable | None = None
    """Items of one form can be encoded together; None: it is encoded alone."""
    arrival: int = 0
    has_begun: bool = False


urgency = attrgetter("priority", "arrival")


class EncoderQueue:
    """The owner of the waiting items and of what each tenant has had."""

    def __init__(self, max_tokens: int = 1) -> None:
        """`max_tokens`: of the items of one step; 1: one item a step."""
        self._max_tokens = max_tokens
        self._items: dict[str, WaitingItem] = {}
        self._by_tenant: dict[str, list[WaitingItem]] = {}
        """Those that have begun too, the most urgent first."""
        self._spent: dict[str, int] = {}
        """Tokens by tenant with items; one that comes begins where the least of them stands."""
        self._turns: dict[str, int] = {}
        """When each tenant with items last had a turn."""
        self._num_arrived = 0
        self._num_turns = 0

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def add(self, item: WaitingItem) -> None:
        """Add an item. One that waits already gets the better of both priorities."""
        known = self._items.get(item.key)
        if known is not None:
            if item.priority < known.priority:
                own = self._by_tenant[known.tenant]
                own.remove(known)
                known.priority = item.priority
                insort(own, known, key=urgency)
            return
        self._num_arrived += 1
        item.arrival = self._num_arrived
        self._items[item.key] = item
        self._spent.setdefault(item.tenant, min(self._spent.values(), default=0))
        self._turns.setdefault(item.tenant, 0)
        insort(self._by_tenant.setdefault(item.tenant, []), item, key=urgency)

    def remove(self, key: str) -> None:
        """Drop an item that is encoded, or that nobody needs. Ignores unknown keys."""
        item = self._items.pop(key, None)
        if item is None:
            return
        own = self._by_tenant[item.tenant]
        own.remove(item)
        if not own:
            del self._by_tenant[item.tenant], self._spent[item.tenant], self._turns[item.tenant]

    def next(self) -> list[str]:
        """Return the items of the next step; none if none waits. Changes nothing."""
        item = min(self._waiting(), key=lambda item: self._turn(item, self._spent), default=None)
        if item is None:
            return []
        chosen, left = [item.key], self._max_tokens - item.num_tokens
        if item.form is None or left <= 0:
            return chosen
        spent = {**self._spent, item.tenant: self._spent[item.tenant] + item.num_tokens}
        fellows = [_fellows(own, item) for own in self._by_tenant.values()]
        heap = [(*self._turn(other, spent), other, rest) for rest in fellows if (other := next(rest, None))]
        heapify(heap)
        while heap:
            *_, item, rest = heap[0]
            if item.num_tokens > left:
                break
            chosen.append(item.key)
            left -= item.num_tokens
            spent[item.tenant] += item.num_tokens
            following = next(rest, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (*self._turn(following, spent), following, rest))
        return chosen

    def begin(self, keys: list[str]) -> None:
        """Note that a step encodes these items, and count them to their tenants. They stay until they are removed."""
        self._num_turns += 1
        for item in map(self._items.__getitem__, keys):
            item.has_begun = True
            self._spent[item.tenant] += item.num_tokens
            self._turns[item.tenant] = self._num_turns

    def _waiting(self) -> Iterator[WaitingItem]:
        """Yield the first item of each tenant that has not begun."""
        for own in self._by_tenant.values():
            yield from islice((item for item in own if not item.has_begun), 1)

    def _turn(self, item: WaitingItem, spent: dict[str, int]) -> tuple[int, int, int, int]:
        """Return the key of the order of turns; smaller is first. Unique, as arrivals are."""
        return item.priority, spent[item.tenant], self._turns[item.tenant], item.arrival


def _fellows(own: list[WaitingItem], first: WaitingItem) -> Iterator[WaitingItem]:
    """Yield the waiting items of a tenant that can be encoded together with the first of a step."""
    return (item for item in own if item.form == first.form and not item.has_begun and item is not first)
