"""The Channels layer of tokens over a real Valkey, and steps written and announced in one script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import RedisError

from chat.relay.token_layer import TokenLayer
from chat.relay.valkey import valkey_connect
from tests.chat.relay.world import World, read_all, text_of


@pytest.fixture
async def layer(valkey: str) -> AsyncIterator[TokenLayer]:
    layer = TokenLayer(valkey, "test:")
    yield layer
    await layer.close()


@pytest.fixture
async def world_on_valkey(world: World, layer: TokenLayer) -> World:
    world.layer = layer
    return world


async def test_messages_come_in_order_to_their_channel(layer: TokenLayer) -> None:
    one, two = await layer.new_channel("a."), await layer.new_channel("b.")
    for number in range(50):
        await layer.send(one, {"n": number, "bytes": b"\0\xff"})
    await layer.send(two, {"n": -1})
    assert [(await layer.receive(one))["n"] for _ in range(50)] == list(range(50))
    assert await layer.receive(two) == {"n": -1}


async def test_a_lost_subscription_is_restored(layer: TokenLayer, valkey: str) -> None:
    channel = await layer.new_channel()
    client = valkey_connect(valkey)
    await client.execute_command("CLIENT", "KILL", "TYPE", "PUBSUB")
    with pytest.raises(RedisError):
        await layer.receive(channel)
    receiving = asyncio.create_task(layer.receive(channel))
    async with asyncio.timeout(10):
        while not await client.publish(channel, layer.serialize({"n": 1})):  # noqa: ASYNC110  # nothing tells of the return
            await asyncio.sleep(0)
        assert await receiving == {"n": 1}
    await client.aclose()


async def test_a_stream_is_written_in_one_round_trip_per_step(world_on_valkey: World) -> None:
    world = world_on_valkey
    worker, web = await world.worker(), await world.web()
    reader, voice = await world.run(web, worker)
    voice.admit()
    for text in "abcdefgh":
        voice.token(text)
        await worker.flush()
    voice.end()
    assert text_of(await read_all(reader)) == "abcdefgh"


async def test_a_refused_log_write_stops_only_its_own_run(world_on_valkey: World) -> None:
    """In one step a worker has lost one of two runs: only that log write is refused."""
    world = world_on_valkey
    worker, web = await world.worker(), await world.web()
    lost, lost_voice = await world.run(web, worker)
    kept, kept_voice = await world.run(web, worker)
    for voice in (lost_voice, kept_voice):
        voice.admit()
    await worker.flush()
    await world.client.xadd(world.keys.log(lost.run_id), {"b": ""}, id="2-1")
    lost_voice.token("never")
    kept_voice.token("always")
    await worker.flush()
    assert list(worker._table.live) == [kept.run_id]
    kept_voice.end()
    assert text_of(await read_all(kept)) == "always"
    assert all(
        b"never" not in fields.get(b"e", b"") for _, fields in await world.client.xrange(world.keys.log(lost.run_id))
    )


async def test_a_log_lost_by_valkey_is_rewritten(world_on_valkey: World) -> None:
    world = world_on_valkey
    worker, web = await world.worker(), await world.web()
    reader, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    await world.client.delete(world.keys.log(reader.run_id))
    voice.token("b")
    await worker.flush()
    await worker.flush()
    voice.end()
    assert text_of(await read_all(reader)) == "ab"
