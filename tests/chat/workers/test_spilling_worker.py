"""A model worker with a real engine whose settings ask for a spill file."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chat.relay.worker.loop_thread import LoopThread
from chat.usage.metrics import system_render, system_state
from chat.workers.engine_start import engine_config
from chat.workers.model import ModelWorker
from engine.api import StopRules
from engine.engine import Engine
from engine.inputs.rendering import LocalRenderer
from tests.chat.relay.world import MODEL, World, read_all, until
from tests.chat.usage.test_metrics import samples
from tests.engine.in_process import connect_in_process
from tests.engine.real_engine import write_model

BLOCK_BYTES = 1 << 12
"""Of the small model in float32."""


@pytest.mark.slow
async def test_the_settings_reach_the_engine_and_the_metrics_count_what_it_reads_back(
    valkey: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.workers.model.WATCH_S", 0.01)
    (tmp_path / MODEL).mkdir()
    write_model(tmp_path / MODEL)
    settings.LIGHTCONE_REDIS_URL, settings.LIGHTCONE_DEPLOYMENT = valkey, f"test-{secrets.token_hex(4)}"
    settings.LIGHTCONE_MODEL, settings.LIGHTCONE_MODEL_NAME = str(tmp_path / MODEL), MODEL
    settings.LIGHTCONE_WEIGHTS, settings.LIGHTCONE_MAX_MODEL_LEN = "float32", 300
    settings.LIGHTCONE_KV_CACHE_BYTES = 20 * BLOCK_BYTES
    settings.LIGHTCONE_KV_SPILL_BYTES, settings.LIGHTCONE_KV_SPILL_FOLDER = 100 * BLOCK_BYTES, tmp_path
    world = World(valkey, settings.LIGHTCONE_DEPLOYMENT)

    def start() -> ModelWorker:
        make = partial(Engine, connect=connect_in_process, renderer=LocalRenderer())
        worker = ModelWorker(engine_config(), "model@here~1", loop=LoopThread("publisher"), make_engine=make)
        assert worker.load(lambda: None)
        return worker

    worker = await asyncio.to_thread(start)
    web = await world.web(sweep_s=0.02)
    letters = random.Random(0)
    kept, other = ("".join(letters.choices("abcdefghij ", k=count)) for count in (200, 280))
    for text in (kept, other, kept):
        request = world.admission().request
        messages = ({"role": "user", "content": text},)
        request = dataclasses.replace(request, messages=messages, stop=StopRules(max_tokens=2, ignore_eos=True))
        reader, _ = await world.admit(web, request=request)
        await asyncio.to_thread(worker.take, reader.run_id, 1)
        events = await read_all(reader)
    assert events[-1].payload.usage.cached_tokens > 100
    await until(lambda: worker.lease()["num_restored_blocks"] > 0)
    await asyncio.to_thread(worker.announce_drain)
    seen = samples(system_render(await system_state(world.client, world.keys)))
    assert seen["lightcone_spill_blocks", MODEL] == 100
    assert 8 < seen["lightcone_restored_blocks", MODEL] <= events[-1].payload.usage.cached_tokens // 16
    assert 100 >= seen["lightcone_spill_blocks_used", MODEL] == seen["lightcone_spilled_blocks", MODEL] > 0
    assert seen["lightcone_lost_blocks", MODEL] == 0
    await asyncio.to_thread(worker.close, 1.0)
    await world.close()
