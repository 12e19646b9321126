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
from django.db import DatabaseError
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
SHOWN = ("phase", "num_done", "num_bytes", "rate", "name", "revision", "message")
CANCELLED_MESSAGES = {
    "pull": "Cancelled; what was fetched is kept.",
    "import": "Cancelled; models that were stored before stay.",
    "check": "Cancelled.",
    "copy": "Cancelled.",
}
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
            await self._end_works()  # another runner goes on with them
            return
        open_jobs = await database_sync_to_async(jobs_open)()
        await asyncio.gather(*(self._cancel(job) for job in open_jobs if job.state == JobState.CANCELLING))
        for job in open_jobs:
            is_new = job.pk not in self._works and job.state != JobState.CANCELLING
            if is_new and len(self._works) < MAX_JOBS:
                self._works[job.pk] = asyncio.create_task(self._work(job))

    async def settle(self) -> None:
        """Wait for the present work; for tests."""
        await asyncio.gather(*self._works.values())

    async def close(self) -> None:
        """End all processes; their jobs stay open for the next runner."""
        await self._end_works()
        if await self._client.get(self._keys.jobs) == self._token:
            await self._client.delete(self._keys.jobs)

    async def _end_works(self) -> None:
        works = list(self._works.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _cancel(self, job: ModelJob) -> None:
        process = self._processes.get(job.pk)
        if process is not None:
            await _ended(process)
        elif job.pk not in self._works:
            await end(job=job, state=JobState.CANCELLED, message="Cancelled.", names=[])

    async def _work(self, job: ModelJob) -> None:
        try:
            if await update(job, [JobState.WAITING, JobState.RUNNING], state=JobState.RUNNING):
                await self._run(job)
        except DatabaseError as error:
            logger.warning("job %s waits for the database: %s", job.public_id, error)  # it is still open
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
            last, names = await self._follow(job, process)
            await process.wait()
        finally:
            self._processes.pop(job.pk, None)
            await _ended(process)
        if "error" in last:
            await end(job=job, state=JobState.FAILED, message=last["error"], names=names)
        elif "done" in last:
            await end(job=job, state=JobState.DONE, message=last["message"], names=names)
        elif await update(job, [JobState.CANCELLING], phase=""):
            await end(job=job, state=JobState.CANCELLED, message=CANCELLED_MESSAGES[str(job.kind)], names=names)
        else:
            await end(job=job, state=JobState.FAILED, message=LOST_MESSAGE, names=names)

    async def _follow(self, job: ModelJob, process: asyncio.subprocess.Process) -> tuple[dict[str, Any], list[str]]:
        """Write the progress of a job into its row; return the last line of its process, and what it has stored."""
        assert process.stdout is not None
        last: dict[str, Any] = {}
        names: list[str] = []
        written_at = 0.0
        while line := await process.stdout.readline():
            last = json.loads(line)
            if "stored" in last:
                names.append(last["stored"])
            fields = {name: last[name] for name in SHOWN if name in last}
            is_due = "name" in last or time.monotonic() - written_at >= WRITE_S
            if fields and is_due and "done" not in last:
                written_at = time.monotonic()
                with contextlib.suppress(DatabaseError):  # the next line says more
                    await update(job, [JobState.RUNNING], **fields)
        return last, names


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
