"""Start runs of requests that name files of a chat as `attachment:ID`: their contents take the place of the names.

Sizes are known before a byte is read. The bytes count until the request is answered, beside those of files by id.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings

from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted, StartedRun, run_start
from chat.api.request.parsed import ParsedRequest
from chat.batches.attached import room
from chat.conversations.files import FileMissing, content_filled, file_get, files_in, files_named
from chat.errors import ApiError


@dataclass(frozen=True, slots=True)
class FilledMessages:
    """Messages with the contents of their files. Call `give_back` once the request is answered."""

    messages: Sequence[Any]
    num_bytes: int
    give_back: Callable[[], None]


async def run_start_filled(accepted: Accepted[ParsedRequest], **how: Any) -> StartedRun:
    """Start a run as `run_start` does, with the files that its messages name. Raises ApiError."""
    filled = await messages_fill(accepted.parsed.messages, accepted.caller)
    parsed = replace(accepted.parsed, messages=filled.messages)
    try:
        run = await run_start(replace(accepted, parsed=parsed, num_bytes=accepted.num_bytes + filled.num_bytes), **how)
    except BaseException:
        filled.give_back()
        raise
    run.reader.when_left(filled.give_back)
    return run


async def messages_fill(messages: Sequence[Any], caller: Caller) -> FilledMessages:
    """Return messages with the files that they name in base64. Raises ApiError if one is gone, or there is no room."""
    named = [_files_of(message) for message in messages]
    user_id = caller.account_id
    if user_id is None or not any(named):
        return FilledMessages(messages, 0, _nothing)
    num_bytes = await database_sync_to_async(_num_bytes)(user_id, named)
    give_back = room.take(caller.project_id, num_bytes)
    try:
        contents: dict[str, tuple[str, str]] = {}
        for file_id in {file_id for ids in named for file_id in ids}:
            contents[file_id] = await _encoded(user_id, file_id)
        return FilledMessages([_filled(message, contents) for message in messages], num_bytes, give_back)
    except BaseException:
        give_back()
        raise


def _files_of(message: Any) -> list[str]:
    return files_in(message.get("content")) if isinstance(message, dict) else []


def _num_bytes(user_id: int, named: Sequence[Sequence[str]]) -> int:
    """Return what the named files have together. Raises ApiError that names the message."""
    found = files_named(user_id=user_id, public_ids={file_id for ids in named for file_id in ids})
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    num_bytes = 0
    for number, ids in enumerate(named):
        for file_id in ids:
            if file_id not in found:
                message = "A file of this message is not there any more; edit the message, and attach it again."
                raise ApiError("invalid_value", message, f"messages.{number}.content")
            num_bytes += found[file_id].num_bytes
    if num_bytes > limit:
        message = (
            f"The files of this chat have {num_bytes} bytes, and a request may have {limit} (LIGHTCONE_MAX_BODY_BYTES);"
            " begin a new chat, or edit a message to take some out."
        )
        raise ApiError("request_too_large", message, "messages", limit=limit, value=num_bytes)
    return num_bytes


async def _encoded(user_id: int, file_id: str) -> tuple[str, str]:
    """Return the type of a file, and its content in base64. Raises ApiError if it has just been removed."""
    try:
        file = await database_sync_to_async(file_get)(user_id=user_id, public_id=file_id)
    except FileMissing as missing:
        raise ApiError("invalid_value", missing.message, "messages") from None
    return file.media_type, (await asyncio.to_thread(base64.b64encode, bytes(file.content))).decode()


def _filled(message: Any, contents: Mapping[str, tuple[str, str]]) -> Any:
    def fill(file_id: str, part: Mapping[str, Any]) -> str:
        media_type, data = contents[file_id]
        return data if part["type"] == "input_audio" else f"data:{media_type};base64,{data}"

    if not isinstance(message, dict):
        return message
    return {**message, "content": content_filled(message.get("content"), fill)}


def _nothing() -> None:
    """Give back no bytes."""
