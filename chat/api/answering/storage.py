"""Answers that are kept beside sending them, and runs that are read again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError

from chat.access.keys import Caller
from chat.api.dialect import AnswerHead, AnswerWriter
from chat.api.request.fields import bad_value
from chat.api.request.parsed import ParsedRequest
from chat.api.stored.services import (
    AnswerUnknown,
    StoredAnswer,
    StoredState,
    answer_end,
    answer_find,
    answer_keep_safely,
    answers_have_room,
)
from chat.errors import ApiError
from chat.generation.completions import RunReader, run_attach
from engine.api import Admitted, Event


class AnswerKeep:
    """Keeps the answer of one run. `request` is what the store has of it beside the head.

    `is_begun`: the answer is in the store already, without its end. One that breaks off is not ended here.
    """

    def __init__(
        self,
        run_id: str,
        caller: Caller,
        kind: str,
        public_id: str,
        *,
        metadata: Mapping[str, str],
        request: Mapping[str, Any],
        is_begun: bool,
    ) -> None:
        self._run_id, self._project_id = run_id, caller.project_id
        self._kind, self._public_id = kind, public_id
        self._metadata, self._request = metadata, request
        self._is_begun = is_begun

    async def begin(self, head: AnswerHead) -> bool:
        """Keep an answer without its end, as the run may end without a reader. Return False if the store refuses."""
        return await self._keep(head, b"")

    async def end(self, head: AnswerHead, body: bytes) -> None:
        """Keep the whole answer. A database that refuses leaves one that is begun to the maintenance worker."""
        if not self._is_begun:
            await self._keep(head, body)
            return
        with suppress(DatabaseError):
            await database_sync_to_async(answer_end)(run_id=self._run_id, state=StoredState.FINISHED, answer=body)

    async def _keep(self, head: AnswerHead, body: bytes) -> bool:
        return await answer_keep_safely(
            run_id=self._run_id,
            public_id=self._public_id,
            project_id=self._project_id,
            kind=self._kind,
            model=head.model,
            metadata=self._metadata,
            request={"head": head.dump(), **self._request},
            created_at=datetime.fromtimestamp(head.created, UTC),
            answer=body,
        )


class Archive:
    """Collects the answer of a stream as if it did not stream, and hands the body over at the end."""

    def __init__(self, answer: AnswerWriter, hand_over: Callable[[bytes], Awaitable[None]]) -> None:
        self._answer = answer
        self._hand_over = hand_over

    async def feed(self, event: Event) -> None:
        self._answer.feed(event)
        if event.is_terminal:
            await self._hand_over(self._answer.body())


def keeps_answer(parsed: ParsedRequest) -> bool:
    """Return True if the request wants its answer kept and this server keeps answers."""
    return bool(parsed.delivery.store) and settings.LIGHTCONE_STORE


async def keeping_refusal(project_id: int) -> ApiError | None:
    """Return the reason why the project may keep no further answer; None if it may."""
    if await answers_have_room(project_id=project_id):
        return None
    message = (
        "store cannot be true: this project has stored as many answers as it may, "
        f"{settings.LIGHTCONE_MAX_PROJECT_ANSWERS} or {settings.LIGHTCONE_MAX_PROJECT_ANSWER_BYTES} bytes of them; "
        "delete some, or send store: false"
    )
    return ApiError("insufficient_quota", message, "store")


def keeping_check(parsed: ParsedRequest, num_bytes: int) -> None:
    """Raise ApiError if a request of this size is too large to be kept, or nested too deeply."""
    limit = settings.LIGHTCONE_LIMITS.max_stored_bytes
    if num_bytes > limit:
        message = f"cannot be true for a request of more than {limit} bytes, got {num_bytes}"
        raise bad_value("store", f"{message}; leave it out, or send less")
    try:
        orjson.dumps([[parsed.messages]])
    except orjson.JSONEncodeError:
        # NOTE: JSON is read to more levels than it is written with, and unknown keys of messages are kept as they are.
        message = "cannot be true for messages that are nested this deeply"
        raise bad_value("store", f"{message}; leave it out, or send them with fewer levels") from None


async def answer_stored(public_id: str, *, kind: str, caller: Caller) -> StoredAnswer | None:
    find = database_sync_to_async(answer_find)
    try:
        found: StoredAnswer = await find(project_id=caller.project_id, kind=kind, public_id=public_id)
    except AnswerUnknown:
        return None
    return found


async def run_rejoin(run_id: str, caller: Caller) -> tuple[RunReader, Admitted] | None:
    """Return another reader of a run, past the admission; None if the run's log is gone. Raises EngineError.

    The caller must leave the reader.
    """
    attached = await run_attach(run_id=run_id, caller=caller)
    if attached is None:
        return None
    reader, _ = attached
    try:
        return reader, await reader.first(timeout_s=settings.LIGHTCONE_QUEUE_TIMEOUT_S)
    except BaseException:
        reader.leave()
        raise
