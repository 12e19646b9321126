"""Images, sounds and documents that go with messages: kept once for each account, apart from the turns that name them.

A content part names a file as `attachment:ID` where a request has its base64. A file stays while a conversation or a
draft names it, and a day longer: a page saves the message after its files. It counts against the quota.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from chat.conversations.models import ChatFile, ChatFileUse, Conversation, Draft
from chat.conversations.space import space_lock, space_take
from chat.errors import ApiError
from engine.api.media_formats import media_format

SCHEME = "attachment:"
NAME = re.compile(SCHEME + "([a-z0-9]{1,32})")
"""As the route of files has ids. Anything else names no file, and never reaches the database."""
PLACES = {"image_url": "url", "file": "file_data", "input_audio": "data"}
"""Where each kind of part has its contents."""
MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WebP": "image/webp",
    "WAV": "audio/wav",
    "MP3": "audio/mpeg",
    "Ogg": "audio/ogg",
    "FLAC": "audio/flac",
    "MP4": "audio/mp4",
    "Matroska or WebM": "audio/webm",
}
"""What browsers show, by formats. Everything else is bytes to them."""
OTHER_TYPE = "application/octet-stream"
UNUSED_FOR = timedelta(days=1)
REMOVED_AT_ONCE = 10


class FileMissing(ApiError):
    """Raised if the user has no such file."""

    def __init__(self) -> None:
        super().__init__("not_found", "You have no file of this id, or not any more; attach it again.", "file")


def file_put(*, user_id: int, content: bytes) -> ChatFile:
    """Keep a file, once however often it is sent. Raises ApiError if it is empty or too large, and QuotaExceeded."""
    limit = settings.LIGHTCONE_LIMITS.max_file_bytes
    if not content:
        raise ApiError("invalid_value", "The file is empty; choose another one.", "file")
    if len(content) > limit:
        message = f"A file of a message may have {limit} bytes (LIGHTCONE_MAX_FILE_BYTES), got {len(content)}."
        raise ApiError("request_too_large", message, "file", limit=limit, value=len(content))
    found = media_format(content)
    with transaction.atomic():
        space = space_lock(user_id)
        kept: ChatFile | None = ChatFile.objects.filter(user_id=user_id, digest=sha256(content).hexdigest()).first()
        if kept is not None:
            kept.sent_at = timezone.now()
            kept.save(update_fields=["sent_at"])
            return kept
        space_take(space, len(content))
        made: ChatFile = ChatFile.objects.create(
            user_id=user_id,
            public_id=secrets.token_hex(16),
            digest=sha256(content).hexdigest(),
            media_type=MEDIA_TYPES.get(found.name, OTHER_TYPE) if found else OTHER_TYPE,
            num_bytes=len(content),
            content=content,
        )
    return made


def file_get(*, user_id: int, public_id: str) -> ChatFile:
    """Return a file with its content. Raises FileMissing."""
    found: ChatFile | None = ChatFile.objects.filter(user_id=user_id, public_id=public_id).first()
    if found is None:
        raise FileMissing
    return found


def files_named(*, user_id: int, public_ids: Collection[str]) -> dict[str, ChatFile]:
    """Return those of the named files that the user has, by id, without their contents."""
    own = ChatFile.objects.filter(user_id=user_id, public_id__in=list(public_ids)).defer("content")
    return {file.public_id: file for file in own}


def files_use(conversation: Conversation, contents: Iterable[Any]) -> None:
    """Keep the files that contents of turns name while the conversation is there."""
    named = {file_id for content in contents for file_id in files_in(content)}
    if not named:
        return
    own = ChatFile.objects.filter(user_id=conversation.user_id, public_id__in=named).values_list("pk", flat=True)
    uses = [ChatFileUse(file_id=pk, conversation=conversation) for pk in own]
    ChatFileUse.objects.bulk_create(uses, ignore_conflicts=True)


def files_prune(*, now: datetime) -> int:
    """Remove files that no conversation and no draft names any more, and return how many."""
    num_removed, last = 0, 0
    while some := list(_unused(now).filter(pk__gt=last).order_by("pk").values_list("pk", "user_id")[:REMOVED_AT_ONCE]):
        for last, user_id in some:
            num_removed += _remove_unused(last, user_id, now)
    return num_removed


def _unused(now: datetime) -> QuerySet[ChatFile]:
    return ChatFile.objects.filter(uses=None, sent_at__lt=now - UNUSED_FOR)


def _remove_unused(pk: int, user_id: int, now: datetime) -> int:
    """Remove a file under the lock of its user, as a page may be about to save a message with it."""
    with transaction.atomic():
        space = space_lock(user_id)
        file = _unused(now).filter(pk=pk).defer("content").first()
        if file is None or Draft.objects.filter(user_id=user_id, text__contains=SCHEME + file.public_id).exists():
            return 0
        space_take(space, -file.num_bytes)
        ChatFile.objects.filter(pk=pk).delete()
    return 1


def contents_whole(
    conversation: Conversation, contents: Sequence[Any], *, limit: int, is_sent: bool = False
) -> list[Any]:
    """Return contents of a conversation's turns with their files as data: URLs. Raises ApiError above `limit` bytes.

    `is_sent`: as a request has it, in which sound is plain base64. A file that is gone keeps its name.
    """
    sizes = file_sizes(Conversation.objects.filter(pk=conversation.pk))
    num_bytes = num_bytes_named(sizes, contents)
    if num_bytes > limit:
        message = (
            f"The files of this chat would have {num_bytes} bytes in its export, once for each place that names them, "
            f"and may have {limit}; export it as Markdown, which has their names."
        )
        raise ApiError("request_too_large", message, limit=limit, value=num_bytes)

    @cache
    def encoded(file_id: str, is_plain: bool) -> str:
        file = ChatFile.objects.filter(user_id=conversation.user_id, public_id=file_id).first()
        if file is None:
            return SCHEME + file_id
        data = base64.b64encode(bytes(file.content)).decode()
        return data if is_plain else f"data:{file.media_type};base64,{data}"

    def whole(file_id: str, part: Mapping[str, Any]) -> str:
        if file_id not in sizes:
            return SCHEME + file_id
        return encoded(file_id, is_sent and part["type"] == "input_audio")

    return [content_filled(content, whole) for content in contents]


def file_sizes(conversations: QuerySet[Conversation]) -> dict[str, int]:
    """Return the bytes of the files of conversations, by their ids."""
    uses = ChatFileUse.objects.filter(conversation__in=conversations.order_by())
    return dict(uses.values_list("file__public_id", "file__num_bytes"))


def num_bytes_named(sizes: Mapping[str, int], contents: Iterable[Any]) -> int:
    """Return what files of these sizes have in base64 where contents name them, each time."""
    named = (file_id for content in contents for file_id in files_in(content))
    return sum(sizes.get(file_id, 0) for file_id in named) * 4 // 3


def files_in(content: Any) -> list[str]:
    """Return the ids of the files that a content names, in its order."""
    named: list[str] = []

    def noted(file_id: str, _: Mapping[str, Any]) -> str:
        named.append(file_id)
        return ""

    content_filled(content, noted)
    return named


def content_filled(content: Any, fill: Callable[[str, Mapping[str, Any]], Any]) -> Any:
    """Return a content with what `fill` returns for the id of each named file, and for its part, in its place."""
    return [_part_filled(part, fill) for part in content] if isinstance(content, list) else content


def _part_filled(part: Any, fill: Callable[[str, Mapping[str, Any]], Any]) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in PLACES or not isinstance(value := part.get(kind), dict):
        return part
    sent = value.get(PLACES[kind])
    named = NAME.fullmatch(sent) if isinstance(sent, str) else None
    return {**part, kind: {**value, PLACES[kind]: fill(named[1], part)}} if named else part
