"""A web process whose loop is held up keeps its runs; one whose loop is dead loses them."""

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


async def test_a_loop_that_is_held_up_for_longer_than_a_lease_keeps_it(world: World) -> None:
    """Large bodies of one tenant held the loop for ten seconds, and every run of its process was ended for that."""
    clock = Clock()
    lease = WebLease(valkey_connect_blocking(world.url), world.keys, "w", clock=clock)
    clock.now += 2 * LEASE_MS / 1000
    lease.renew()
    assert await lease_left_ms(world, "w") > LEASE_MS / 2
    assert await world.client.sismember(world.keys.webs, "w")
    lease.close()


async def test_a_loop_that_stands_still_loses_its_lease_and_one_that_goes_on_gets_it_again(world: World) -> None:
    clock = Clock()
    lease = WebLease(valkey_connect_blocking(world.url), world.keys, "w", clock=clock)
    clock.now += LOOP_DEAD_S + 1
    lease.renew()
    assert await lease_left_ms(world, "w") < 0
    lease.tick()
    lease.renew()
    assert await lease_left_ms(world, "w") > 0
    lease.close()


async def test_a_process_that_ends_gives_its_lease_back(world: World) -> None:
    web = await world.web()
    assert await lease_left_ms(world, web.web_id) > 0
    await web.close()
    world.dispatchers.remove(web)
    assert await lease_left_ms(world, web.web_id) < 0
