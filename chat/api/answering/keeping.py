"""What is done with a whole answer beside sending it: dialects keep it where its request asks for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import orjson
from django.conf import settings

from chat.api.dialect import AnswerHead, AnswerWriter
from chat.api.stored.services import answers_have_room
from chat.errors import ApiError
from engine.api import Event


class Keep(Protocol):
    """`end` is told the whole answer before its last piece is sent, and never raises; an answer that breaks off is not told."""

    async def end(self, head: AnswerHead, body: bytes) -> None: ...


class Archive:
    """Collects the answer of a stream as if it did not stream, and hands its body over when it is whole."""

    def __init__(self, answer: AnswerWriter, hand_over: Callable[[bytes], Awaitable[None]]) -> None:
        self._answer = answer
        self._hand_over = hand_over

    async def feed(self, event: Event) -> None:
        self._answer.feed(event)
        if event.is_terminal:
            await self._hand_over(self._answer.body())


def keeps_answer(values: Mapping[str, Any]) -> bool:
    """Whether the answer is to be kept, and this server keeps any."""
    return bool(values["store"]) and settings.LIGHTCONE_STORE


async def keeping_refusal(project_id: int) -> ApiError | None:
    """Why the project may keep no further answer; None while it may."""
    if await answers_have_room(project_id=project_id):
        return None
    message = (
        f"store cannot be true: this project has stored as many answers as it may, {settings.LIGHTCONE_MAX_PROJECT_ANSWERS} or "
        f"{settings.LIGHTCONE_MAX_PROJECT_ANSWER_BYTES} bytes of them; delete some, or send store: false"
    )
    return ApiError("insufficient_quota", message, "store")


def keeping_check(values: Mapping[str, Any], num_bytes: int) -> None:
    """Raises ApiError where the request, of that size, is too large to be kept, or nested too deeply."""
    if not keeps_answer(values):
        return
    limit = settings.LIGHTCONE_LIMITS.max_stored_bytes
    if num_bytes > limit:
        message = f"store cannot be true for a request of more than {limit} bytes, got {num_bytes}; leave it out, or send less"
        raise ApiError("invalid_value", message, "store")
    try:
        orjson.dumps([[values["messages"]]])
    except orjson.JSONEncodeError:
        # NOTE: JSON is read to more levels than it is written with, and keys of messages that nobody knows are kept as they are.
        message = "store cannot be true for messages that are nested this deeply; leave it out, or send them with fewer levels"
        raise ApiError("invalid_value", message, "store") from None
