"""Several conversations in one file: those that are named, or all that words and filters find.

A file is written one conversation after the other, so that no more than one is held at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.db.models import QuerySet, Sum

from chat.conversations.facets import Filters
from chat.conversations.files import SCHEME, file_sizes, num_bytes_named
from chat.conversations.models import Conversation, SearchText, Turn
from chat.conversations.search import text_ids_matching
from chat.conversations.transfer import EXPORTS, KIND_SEVERAL, MAX_EXPORTED_BYTES
from chat.conversations.turns import body_of
from chat.errors import ApiError

MAX_EXPORTED = 1_000
"""Conversations of one file."""
TEXTS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What stands before, between and after the conversations of a file."""

    opening: bytes = b""
    between: bytes = b""
    closing: bytes = b""


WRAPPINGS = {
    "json": Wrapping(b'{"object":"%s","conversations":[\n' % KIND_SEVERAL.encode(), b",\n", b"\n]}\n"),
    "markdown": Wrapping(between=b"\n---\n\n"),
    "jsonl": Wrapping(),
}


def conversations_named(*, user_id: int, public_ids: Collection[str]) -> list[int]:
    """Return the keys of conversations of a user, the latest change first. Raises ApiError beyond the limits."""
    return _bounded(Conversation.objects.filter(user_id=user_id, deleted_at=None, public_id__in=public_ids))


def conversations_found(*, user_id: int, query: str, filters: Filters) -> list[int]:
    """Return the keys of all conversations that fit, the latest change first. Raises ApiError beyond the limits.

    An empty query leaves the filters alone.
    """
    own = Conversation.objects.filter(user_id=user_id, deleted_at=None)
    if query.strip():
        return _bounded(own.filter(pk__in=_with_words(user_id, query, filters)))
    return _bounded(filters.narrow(own, user_id=user_id))


def _with_words(user_id: int, query: str, filters: Filters) -> set[int]:
    """Return the conversations that have the words in a text, and no more than one beyond the limit."""
    found: set[int] = set()
    before = 2**62
    while len(found) <= MAX_EXPORTED:
        texts = text_ids_matching(user_id=user_id, query=query, before=before, limit=TEXTS_AT_ONCE, filters=filters)
        for number in range(0, len(texts), 500):  # SQLite takes a bounded number of values
            some = SearchText.objects.filter(pk__in=texts[number : number + 500])
            found |= set(some.values_list("conversation_id", flat=True))
        if len(texts) < TEXTS_AT_ONCE:
            return found
        before = texts[-1]
    return set(list(found)[: MAX_EXPORTED + 1])


def _bounded(conversations: QuerySet[Conversation]) -> list[int]:
    keys = list(conversations.order_by("-updated_at", "-id").values_list("pk", flat=True)[: MAX_EXPORTED + 1])
    if len(keys) > MAX_EXPORTED:
        message = f"One file takes at most {MAX_EXPORTED} chats, and these are more; narrow them by words or filters."
        raise ApiError("request_too_large", message, limit=MAX_EXPORTED)
    num_bytes = conversations.order_by().aggregate(num_bytes=Sum("num_bytes", default=0))["num_bytes"]
    if num_bytes <= MAX_EXPORTED_BYTES:
        num_bytes += _num_bytes_of_files(conversations)
    if num_bytes > MAX_EXPORTED_BYTES:
        message = f"One file takes at most {MAX_EXPORTED_BYTES} bytes of chats, and these have {num_bytes}; take fewer."
        raise ApiError("request_too_large", message, limit=MAX_EXPORTED_BYTES, value=num_bytes)
    if not keys:
        raise ApiError("not_found", "None of your chats is meant by this; there is nothing to export.")
    return keys


def _num_bytes_of_files(conversations: QuerySet[Conversation]) -> int:
    """Return what the files of conversations have in an export, which has each of them wherever a turn names it."""
    sizes = file_sizes(conversations)
    if not sizes:
        return 0
    naming = Turn.objects.filter(conversation__in=conversations.order_by(), body__contains=SCHEME)
    return num_bytes_named(sizes, (body_of(turn).get("content") for turn in naming.only("body").iterator()))


async def export_written(keys: Sequence[int], format_name: str) -> AsyncIterator[bytes]:
    """Yield a file of these conversations. One that has been deleted meanwhile is left out."""
    wrapping = WRAPPINGS[format_name]
    yield wrapping.opening
    num_written = 0
    for key in keys:
        piece = await database_sync_to_async(_piece)(key, format_name)
        if piece is not None:
            yield wrapping.between + piece if num_written else piece
            num_written += 1
    yield wrapping.closing


def _piece(key: int, format_name: str) -> bytes | None:
    found = Conversation.objects.filter(pk=key, deleted_at=None).first()
    return None if found is None else EXPORTS[format_name][0](conversation=found)
