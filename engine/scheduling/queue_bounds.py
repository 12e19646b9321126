"""The bound of the waiting queue, checked by the worker before a request is sent and by the scheduler of the core."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api.errors import EngineUnavailable, ErrorCode


def has_place(num_known: Mapping[str, int], tenant: str, count: int, most: int) -> bool:
    """Return True if a queue for `most` sequences takes `count` more of a tenant.

    `num_known`: sequences in it, by tenant. A full queue still takes a tenant up to its equal share, so no tenant can
    fill it for the others. It may therefore exceed `most`: by a half at most for the second tenant, by a third for the
    third, and so on.
    """
    own = num_known.get(tenant, 0)
    num_tenants = len(num_known) + (tenant not in num_known)
    return sum(num_known.values()) + count <= most or own + count <= most // num_tenants


def queue_full(max_waiting: int) -> EngineUnavailable:
    """Return the error for a request that has no place."""
    message = (
        f"the queue is full ({max_waiting} requests may wait), and this project has its share of it; try again later"
    )
    return EngineUnavailable(ErrorCode.OVERLOADED, message)
