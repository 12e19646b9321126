"""The job runner: does open jobs on stored models, each in a process of its own. The maintenance worker has one.

A job that was running when its runner ended goes on with the next one: pulls keep what they have fetched. Of several
maintenance workers one runs jobs at a time (a lock in Valkey), on its machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import secrets
import sys
import time
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from redis.asyncio import Redis

from chat.model_jobs.models import JobKind, JobState, ModelJob
from chat.model_jobs.process import Order
from chat.model_jobs.services import job_end, job_update, jobs_open
from chat.relay.state.keys import Keys
from chat.relay.valkey import lock_hold

logger = logging.getLogger(__name__)

MAX_JOBS = 4
"""At once."""
LOCK_MS = 10_000
WRITE_S = 0.5
LEAVE_S = 5.0
LINE_BYTES = 1 << 20
SHOWN = ("phase", "num_done", "num_bytes", "rate", "name", "message")
LOST_MESSAGE = "The process of this job ended; the log of the maintenance worker tells why. Try again."

end = database_sync_to_async(job_end)
update = database_sync_to_async(job_update)


class JobRunner:
    """Does up to MAX_JOBS jobs at once. Create it on its loop."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._token = secrets.token_hex(8).encode()
        self._works: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def turn(self) -> None:
        """Begin jobs that wait, and end those that are cancelled. Raises RedisError and DatabaseError."""
        if not await lock_hold(self._client, self._keys.jobs, self._token, LOCK_MS):
            return
        for job in await database_sync_to_async(jobs_open)():
            if job.state == JobState.CANCELLING:
                await self._cancel(job)
            elif job.pk not in self._works and len(self._works) < MAX_JOBS:
                self._works[job.pk] = asyncio.create_task(self._work(job))

    async def settle(self) -> None:
        """Wait for the present work; for tests."""
        await asyncio.gather(*self._works.values())

    async def close(self) -> None:
        """End all processes; their jobs stay open for the next runner."""
        works = list(self._works.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await self._client.delete(self._keys.jobs)

    async def _cancel(self, job: ModelJob) -> None:
        process = self._processes.get(job.pk)
        if process is not None:
            await _ended(process)
        elif job.pk not in self._works:
            await end(job=job, state=JobState.CANCELLED, message="Cancelled.", names=[])

    async def _work(self, job: ModelJob) -> None:
        try:
            await update(job, [JobState.WAITING], state=JobState.RUNNING)
            await self._run(job)
        except Exception:
            logger.exception("job %s broke off", job.public_id)
            await end(job=job, state=JobState.FAILED, message=LOST_MESSAGE, names=[])
        finally:
            self._works.pop(job.pk, None)

    async def _run(self, job: ModelJob) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chat.model_jobs.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=settings.BASE_DIR,
            limit=LINE_BYTES,
        )
        self._processes[job.pk] = process
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(dataclasses.asdict(_order(job))).encode() + b"\n")
            last = await self._follow(job, process)
            await process.wait()
        finally:
            self._processes.pop(job.pk, None)
            await _ended(process)
        if "error" in last:
            await end(job=job, state=JobState.FAILED, message=last["error"], names=[])
        elif "stored" in last:
            await end(job=job, state=JobState.DONE, message=last["message"], names=last["stored"])
        elif await update(job, [JobState.CANCELLING], phase=""):
            await end(job=job, state=JobState.CANCELLED, message="Cancelled; what was fetched is kept.", names=[])
        else:
            await end(job=job, state=JobState.FAILED, message=LOST_MESSAGE, names=[])

    async def _follow(self, job: ModelJob, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Write the progress of a job into its row, and return the last line of its process."""
        assert process.stdout is not None
        last: dict[str, Any] = {}
        written_at = 0.0
        while line := await process.stdout.readline():
            last = json.loads(line)
            fields = {name: last[name] for name in SHOWN if name in last}
            is_due = "name" in last or time.monotonic() - written_at >= WRITE_S
            if fields and is_due and "stored" not in last:
                written_at = time.monotonic()
                await update(job, [JobState.RUNNING], **fields)
        return last


def _order(job: ModelJob) -> Order:
    token = settings.LIGHTCONE_HUB_TOKEN if job.kind == JobKind.PULL else ""
    name = job.name if job.kind != JobKind.CHECK else ""
    store = str(settings.LIGHTCONE_MODEL_STORE)
    return Order(job.kind, job.asked, job.revision, name, store, token, settings.LIGHTCONE_DEVICE)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a process whose order is no longer wanted, and wait for it."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(LEAVE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
