"""A web process with a briefly blocked event loop keeps its runs; one with a dead loop loses them."""

from __future__ import annotations

from chat.relay.state.runs import LEASE_MS
from chat.relay.valkey import valkey_connect_blocking
from chat.relay.web.lease import LOOP_DEAD_S, WebLease
from tests.chat.relay.world import World


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def lease_left_ms(world: World, web_id: str) -> int:
    left: int = await world.client.pttl(world.keys.web(web_id))
    return left


async def test_a_briefly_blocked_event_loop_keeps_its_lease(world: World) -> None:
    """Large bodies of one tenant blocked the loop for ten seconds, and all runs of the process were ended."""
    clock = Clock()
    lease = WebLease(valkey_connect_blocking(world.url), world.keys, "w", clock=clock)
    clock.now += 2 * LEASE_MS / 1000
    lease.renew()
    assert await lease_left_ms(world, "w") > LEASE_MS / 2
    assert await world.client.sismember(world.keys.webs, "w")
    lease.close()


async def test_a_dead_event_loop_loses_its_lease_until_it_continues(world: World) -> None:
    clock = Clock()
    lease = WebLease(valkey_connect_blocking(world.url), world.keys, "w", clock=clock)
    clock.now += LOOP_DEAD_S + 1
    lease.renew()
    assert await lease_left_ms(world, "w") < 0
    lease.tick()
    lease.renew()
    assert await lease_left_ms(world, "w") > 0
    lease.close()


async def test_an_ending_process_releases_its_lease(world: World) -> None:
    web = await world.web()
    assert await lease_left_ms(world, web.web_id) > 0
    await web.close()
    world.dispatchers.remove(web)
    assert await lease_left_ms(world, web.web_id) < 0
