"""The stream of terminal records, read by one writer at a time. Records leave it only after they are stored."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from chat.relay.state.keys import Keys
from chat.relay.state.records import client_outcome_fields, unpack_record
from chat.relay.valkey import Answers, lock_hold

logger = logging.getLogger(__name__)

GROUP = CONSUMER = "writer"
BATCH_RECORDS = 500
BLOCK_MS = 1_000
LOCK_MS = 10_000


class UsageStream:
    """The writer's end of the stream.

    All writers share one consumer name, so each finds what the last one left. The lock lets one work.
    """

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client: Answers = client
        self._keys = keys
        self._token = secrets.token_hex(8).encode()

    async def lock(self) -> bool:
        return await lock_hold(self._client, self._keys.usage_writer, self._token, LOCK_MS)

    async def unlock(self) -> None:
        if await self._client.get(self._keys.usage_writer) == self._token:
            await self._client.delete(self._keys.usage_writer)

    async def left_over(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Return the records that were read and never acknowledged."""
        return await self._read("0", None, BATCH_RECORDS)

    async def read(
        self, *, limit: int = BATCH_RECORDS, block_ms: int | None = BLOCK_MS
    ) -> list[tuple[bytes, dict[str, Any]]]:
        """Return new records as (entry id, record). Waits up to `block_ms` for the first (None: not at all)."""
        return await self._read(">", block_ms, limit)

    async def done(self, entry_ids: list[bytes]) -> None:
        """Acknowledge and delete records that are stored."""
        if entry_ids:
            pipe = self._client.pipeline(transaction=False)
            pipe.xack(self._keys.usage, GROUP, *entry_ids)
            pipe.xdel(self._keys.usage, *entry_ids)
            await pipe.execute()

    async def _read(self, start: str, block_ms: int | None, limit: int) -> list[tuple[bytes, dict[str, Any]]]:
        try:
            answer = await self._client.xreadgroup(
                GROUP, CONSUMER, {self._keys.usage: start}, count=limit, block=block_ms
            )
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            await self._client.xgroup_create(self._keys.usage, GROUP, id="0", mkstream=True)
            return await self._read(start, block_ms, limit)
        records = []
        for entry_id, fields in answer[0][1] if answer else []:
            try:
                records.append((entry_id, _record(fields)))
            except (KeyError, ValueError) as error:
                # An empty record is refused and logged by the writer, and so leaves the stream.
                logger.error("usage entry %s cannot be read: %s", entry_id.decode(), error)
                records.append((entry_id, {}))
        return records


def _record(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """Return the record with the outcome that the client saw; `run_id` and `told` alone if the record came earlier."""
    outcome = fields.get(b"t", b"").decode()
    if b"r" not in fields:
        return {"run_id": fields[b"id"].decode(), "told": outcome}
    record = unpack_record(fields[b"r"])
    if b"b" in fields:
        record["texts"] = fields[b"b"]
    return record | client_outcome_fields(outcome) if outcome else record
