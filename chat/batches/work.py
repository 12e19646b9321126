"""The work on one batch, from its present state to its end.

1. validating: check every line of the input. An invalid one fails the batch.
2. in progress: answer the lines without a result, some at once. Each result is committed on its own, so that a takeover
   repeats only lines that were running.
3. finalizing: write results into files and end the batch.

Meanwhile it renews the claim and watches for an early end: a cancel, its expiry, a key that is no longer valid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.utils import timezone

from chat.access.accounts import caller_of_key
from chat.access.keys import Caller, KeyInvalid
from chat.batches import services as batches
from chat.batches.files import FileMissing, file_content, file_of_batch
from chat.batches.input_lines import InputCheck, InputLine, LineRefused, LineSplitter, line_read
from chat.batches.limiter import AimdLimiter
from chat.batches.lines import (
    TRIES,
    LineAnswer,
    View,
    endpoint_view,
    line_answer,
    result_text,
    tokens_of,
    unanswered_text,
)
from chat.batches.models import Batch, BatchStatus
from chat.batches.services import ClaimLost
from chat.errors import INTERNAL_MESSAGE, ApiError

logger = logging.getLogger(__name__)

WATCH_S = 1.0
RENEW_S = 10.0
KEY_LOOKS = 5
"""Check the key at every so many watches."""
CLOSED_AT_ONCE = 200
INTERNAL_BODY = orjson.dumps(
    {"error": ApiError("internal_error", INTERNAL_MESSAGE).described(), "message": INTERNAL_MESSAGE}
)
EXPIRED_MESSAGE = "This request could not be executed before the completion window expired."
KEY_MESSAGE = (
    "The API key that created the batch is disabled, deleted or expired; "
    "the requests that were left have not been sent."
)
FILE_ERROR = LineRefused("file_missing", "The input file is no longer there.").described()
KEY_ERROR = LineRefused("invalid_api_key", KEY_MESSAGE).described()


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The end of the lines: the status that the batch takes, one of BatchStatus, and errors."""

    status: Any
    errors: list[dict[str, Any]] = field(default_factory=list)


class BatchWork:
    """The work on one batch. `slots`: permits for requests, shared by all batches of a runner."""

    def __init__(self, batch: Batch, *, owner: str, slots: asyncio.Semaphore) -> None:
        self.batch = batch
        self._owner = owner
        self._slots = slots
        self._limiter = AimdLimiter(settings.LIGHTCONE_BATCH_CONCURRENCY)
        self._caller: Caller | None = None

    async def run(self) -> None:
        """Work until the batch ends. Raises ClaimLost if another runner has it or its state has changed meanwhile."""
        await first_of(self._keep_claim(), self._work())

    async def _work(self) -> None:
        status = self.batch.status
        if status == BatchStatus.VALIDATING:
            if not await self._validate():
                return
            status = BatchStatus.IN_PROGRESS
        if status != BatchStatus.FINALIZING:
            ending = await self._come_to_end(status)
            await self._step(batches.batch_finalize, ends_as=ending.status, errors=ending.errors)
            self.batch.ends_as = ending.status
        await self._finish()

    async def _come_to_end(self, status: str) -> BatchOutcome:
        if status == BatchStatus.CANCELLING:
            return BatchOutcome(BatchStatus.CANCELLED)
        if timezone.now() >= self.batch.expires_at:
            return BatchOutcome(BatchStatus.EXPIRED)
        ending: BatchOutcome = await first_of(self._watch(), self._answer_lines())
        return ending

    async def _keep_claim(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            if await database_sync_to_async(batches.batch_claim)(pk=self.batch.pk, owner=self._owner) is None:
                raise ClaimLost

    async def _step(self, act: Any, **fields: Any) -> None:
        await database_sync_to_async(act)(pk=self.batch.pk, owner=self._owner, **fields)

    # 1. The input.

    async def _validate(self) -> bool:
        check = InputCheck(self.batch.endpoint)
        try:
            async for chunk in self._chunks():
                await asyncio.to_thread(check.feed, chunk)
                if check.is_hopeless:
                    break
            await asyncio.to_thread(check.flush)
            errors = check.errors
        except FileMissing:
            errors = [FILE_ERROR]
        if errors:
            await self._step(batches.batch_refuse, errors=errors)
        else:
            await self._step(batches.batch_begin, num_lines=check.num_lines, model=check.model)
        return not errors

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the content of the input file. Raises FileMissing."""
        file = await database_sync_to_async(file_of_batch)(batch=self.batch)
        async for chunk in file_content(file_pk=file.pk):
            yield chunk

    async def _lines(self) -> AsyncIterator[InputLine]:
        """Yield the requests of the validated input. Log and skip an invalid line, which cannot occur any more."""
        splitter = LineSplitter(settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes)
        async for chunk in self._chunks():
            for line in await asyncio.to_thread(self._requests, splitter.feed(chunk)):
                yield line
        for line in await asyncio.to_thread(self._requests, splitter.flush()):
            yield line

    def _requests(self, texts: list[tuple[int, bytes]]) -> list[InputLine]:
        lines = []
        for number, text in texts:
            try:
                lines.append(line_read(number, text, self.batch.endpoint))
            except LineRefused:
                logger.error("line %d of %s is no request any more", number, self.batch.public_id)
        return lines

    # 2. The lines.

    async def _answer_lines(self) -> BatchOutcome:
        try:
            await self._look_at_key()
        except KeyInvalid:
            return BatchOutcome(BatchStatus.FAILED, [KEY_ERROR])
        view = endpoint_view(self.batch.endpoint)
        answered = await database_sync_to_async(batches.lines_answered)(pk=self.batch.pk)
        window = asyncio.Semaphore(settings.LIGHTCONE_BATCH_CONCURRENCY)
        try:
            async with asyncio.TaskGroup() as group:
                async for line in self._lines():
                    if line.number not in answered:
                        await window.acquire()
                        group.create_task(self._answer_line(line, view)).add_done_callback(lambda _: window.release())
        except ExceptionGroup as failures:
            # NOTE: the first failure has cancelled the other tasks.
            if isinstance(failures.exceptions[0], FileMissing):
                return BatchOutcome(BatchStatus.FAILED, [FILE_ERROR])
            raise failures.exceptions[0] from None
        return BatchOutcome(BatchStatus.COMPLETED)

    async def _answer_line(self, line: InputLine, view: View) -> None:
        answer = await self._send(line, view)
        is_fleeting_left = TRIES - 1
        while answer.wait_s is not None and (not answer.is_fleeting or is_fleeting_left > 0):
            is_fleeting_left -= answer.is_fleeting
            self._limiter.back_off(answer.wait_s)
            answer = await self._send(line, view)
        self._limiter.grow()
        tokens = batches.Tokens() if answer.is_error else tokens_of(answer.body)
        text = result_text(line, answer)
        await self._step(batches.result_add, line=line.number, text=text, is_error=answer.is_error, tokens=tokens)

    async def _send(self, line: InputLine, view: View) -> LineAnswer:
        assert self._caller is not None
        async with self._limiter.permit(), self._slots:
            try:
                return await line_answer(
                    line, endpoint=self.batch.endpoint, view=view, caller=self._caller, batch_id=self.batch.public_id
                )
            except Exception:
                # Views turn their own failures into answers, so this is a defect. The other lines go on.
                logger.exception("line %d of %s failed", line.number, self.batch.public_id)
                return LineAnswer(500, "", INTERNAL_BODY)

    async def _watch(self) -> BatchOutcome:
        """Wait until something ends the batch early. Raises ClaimLost if it is gone."""
        num_looks = 0
        while True:
            await asyncio.sleep(WATCH_S)
            num_looks += 1
            status = await database_sync_to_async(batches.batch_status)(pk=self.batch.pk, owner=self._owner)
            if status == BatchStatus.CANCELLING:
                return BatchOutcome(BatchStatus.CANCELLED)
            if timezone.now() >= self.batch.expires_at:
                return BatchOutcome(BatchStatus.EXPIRED)
            if num_looks % KEY_LOOKS == 0:
                try:
                    await self._look_at_key()
                except KeyInvalid:
                    return BatchOutcome(BatchStatus.FAILED, [KEY_ERROR])

    async def _look_at_key(self) -> None:
        """Read the present caller of the key and adapt the concurrency. Raises KeyInvalid."""
        load = database_sync_to_async(caller_of_key)
        caller: Caller = await load(public_id=self.batch.key_public_id, project_id=self.batch.project_id)
        self._caller = caller
        self._limiter.set_most(min(settings.LIGHTCONE_BATCH_CONCURRENCY, caller.limits.live_share))

    # 3. The files.

    async def _finish(self) -> None:
        if self.batch.ends_as == BatchStatus.EXPIRED:
            await self._close_lines()
        for is_error in (False, True):
            output = await database_sync_to_async(batches.batch_output_begin)(
                pk=self.batch.pk, owner=self._owner, is_error=is_error
            )
            while output is not None and await database_sync_to_async(output.write_page)():
                """Write by pages, as other work waits for the same thread."""
        await self._step(batches.batch_end)
        while await database_sync_to_async(batches.results_forget)(pk=self.batch.pk):
            """Delete by pages, as above."""
        logger.info("batch %s ended: %s", self.batch.public_id, self.batch.ends_as)

    async def _close_lines(self) -> None:
        """Store an error for each line that was not answered in time."""
        answered = await database_sync_to_async(batches.lines_answered)(pk=self.batch.pk)
        texts: dict[int, str] = {}
        try:
            async for line in self._lines():
                if line.number not in answered:
                    texts[line.number] = unanswered_text(line.custom_id, "batch_expired", EXPIRED_MESSAGE)
                if len(texts) >= CLOSED_AT_ONCE:
                    await self._step(batches.errors_add, texts=texts)
                    texts = {}
        except FileMissing:
            logger.warning("the input of %s is gone: its lines cannot be told", self.batch.public_id)
        await self._step(batches.errors_add, texts=texts)


async def first_of(*works: Coroutine[Any, Any, Any]) -> Any:
    """Return or raise the outcome of the first coroutine to end, after the others were cancelled and have ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(task.result() for task in tasks if task in done)
