"""The shared memory budget of request bodies."""

from __future__ import annotations

from lightcone_site.http_server.budget import LARGE_BYTES, BodiesBudget, BodyRoom


def test_memory_of_large_bodies_is_released_at_their_end() -> None:
    """A process kept hundreds of megabytes after a few bodies of 30 MB."""
    ends: list[int] = []
    budget = BodiesBudget(8 * LARGE_BYTES, lambda: ends.append(budget.num_taken))
    large, small = BodyRoom(budget, "one"), BodyRoom(budget, "one")
    large.grow_to(LARGE_BYTES // 2)
    large.grow_to(LARGE_BYTES)
    small.grow_to(LARGE_BYTES - 1)
    small.give_back()
    assert ends == []
    large.give_back()
    large.give_back()
    assert ends == [0]
