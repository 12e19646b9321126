"""Who finds a place in a queue of bounded length. Used by the core's scheduler and, before a request travels, by the worker's admission."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api.errors import EngineUnavailable, ErrorCode


def has_place(num_known: Mapping[str, int], tenant: str, count: int, most: int) -> bool:
    """Whether `count` more sequences of a tenant have a place beside those that are known, by tenant, where `most` have one.

    A queue that is full is so for whoever has an equal share of it: nobody can fill it for the others. It holds the more for that, by
    no more than a half for the second tenant, a third for the third and so on.
    """
    own = num_known.get(tenant, 0)
    num_tenants = len(num_known) + (tenant not in num_known)
    return sum(num_known.values()) + count <= most or own + count <= most // num_tenants


def queue_full(max_waiting: int) -> EngineUnavailable:
    """The refusal of whoever has no place."""
    message = (
        f"the queue is full ({max_waiting} requests may wait), and this project has its share of it; try again later"
    )
    return EngineUnavailable(ErrorCode.OVERLOADED, message)
