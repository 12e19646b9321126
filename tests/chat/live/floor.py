"""Workers, leases and live requests as they stand in Valkey, written as workers and admission write them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chat.live.source import source
from chat.relay.state.hosts import HostReport, host_fields
from chat.relay.state.keys import Keys, model_slug, run_id_create
from chat.relay.valkey import valkey_connect_blocking

NODE = "model@here"


@dataclass
class LiveFloor:
    """What a test puts into Valkey. Each method shows at once."""

    client: Any
    keys: Keys

    def host(self, node: str = NODE, **fields: Any) -> str:
        now = time.time()
        report = HostReport(node, "here", 7, "1.0", "cpu", "A processor", 64 * 10**9, 8 * 10**9, beat_at=now)
        report = replace(report, started_at=now - 60, **fields)
        self.client.hset(self.keys.host(node), mapping=host_fields(report))
        self.client.zadd(self.keys.hosts, {node: int(report.beat_at * 1000)})
        source.forget()
        return node

    def lease(self, model: str, state: str = "ready", *, node: str = NODE, **fields: Any) -> str:
        lease_id = f"{node}~{secrets.token_hex(4)}"
        known = {"model": model, "state": state, "phase": "", "fraction": "0", "reason": "", "seats": 8}
        known |= {"beat_at": time.time(), "num_live": 0, "num_running": 0, "num_waiting": 0}
        self.client.hset(self.keys.worker(lease_id), mapping=known | fields)
        self.client.sadd(self.keys.workers, lease_id)
        self.client.sadd(self.keys.model_workers(model_slug(model)), lease_id)
        source.forget()
        return lease_id

    def run(self, model: str, *, project_id: int = 0, state: str = "running", worker: str = "", **about: Any) -> str:
        """Add a live request as admission does."""
        now = time.time()
        run_id = run_id_create()
        known = {"model": model, "project_id": project_id, "arrived_at": now} | about
        meta = {"state": state, "worker": worker, "stop": "", "attempt": 1, "about": json.dumps(known)}
        self.client.hset(self.keys.meta(run_id), mapping=meta)
        self.client.zadd(self.keys.model_live(model_slug(model)), {run_id: int((now + 120) * 1000)})
        source.forget()
        return run_id


@pytest.fixture
def floor(valkey: str, settings: Any) -> Iterator[LiveFloor]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    with valkey_connect_blocking(valkey) as client:
        source.forget()
        yield LiveFloor(client, Keys(settings.LIGHTCONE_DEPLOYMENT))
        source.forget()
