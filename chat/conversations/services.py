"""The acts on conversations as a whole. Those on their turns are in turns.py.

Each act is one transaction that holds the user's space. Creating is idempotent, by the id that the page has given.
Changes name the version that they start from, so that two tabs cannot undo each other's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from chat.conversations.facets import Filters, facet_key, tags_index
from chat.conversations.models import Conversation, SearchText
from chat.conversations.search import NO_FILTERS, texts_matching, words_of
from chat.conversations.space import Conflict, ConversationMissing, conversation_get, space_lock, space_take
from chat.errors import ApiError

MAX_CONVERSATIONS = 100_000
"""Of a user, deleted ones included."""
ROW_BYTES = 256
"""What a conversation or a turn counts for beside its texts."""
RESTORABLE = timedelta(days=1)
"""How long a deleted conversation can be restored."""
REMOVED_AT_ONCE = 10
MAX_TAGS = 20
"""Of a conversation."""
CHANGED = ("title", "folder", "tags", "settings", "pinned_at", "archived_at")
"""What a change sets. The head is set without a version, and not put back by one."""
VIEWS = {
    "all": Q(deleted_at=None),
    "current": Q(deleted_at=None, archived_at=None),
    "pinned": Q(deleted_at=None, archived_at=None, pinned_at__isnull=False),
    "archived": Q(deleted_at=None, archived_at__isnull=False),
    "deleted": Q(deleted_at__isnull=False),
}


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found: a turn of a conversation, or its title if `turn` is None."""

    position: int
    """Where the next page begins: `before`."""
    text: SearchText


@dataclass(frozen=True, slots=True)
class Former:
    """How a conversation was before a change of several."""

    public_id: str
    folder: str
    is_archived: bool


def conversation_create(*, user_id: int, public_id: str, fields: Mapping[str, Any]) -> Conversation:
    """Create a conversation, or return the one that the user has by this id. `fields` are those of a change.

    Raises ApiError beyond the quota or MAX_CONVERSATIONS, and ConversationMissing if it was deleted.
    """
    with transaction.atomic():
        space = space_lock(user_id)
        found: Conversation | None = Conversation.objects.filter(user_id=user_id, public_id=public_id).first()
        if found is not None:
            if found.deleted_at is not None:
                raise ConversationMissing
            return found
        if Conversation.objects.filter(user_id=user_id).count() >= MAX_CONVERSATIONS:
            message = f"You have {MAX_CONVERSATIONS} conversations, as many as anybody may; delete some."
            raise ApiError("insufficient_quota", message, limit=MAX_CONVERSATIONS)
        made = Conversation(user_id=user_id, public_id=public_id, num_bytes=ROW_BYTES)
        made.num_bytes += _fields_set(made, fields)
        space_take(space, made.num_bytes)
        made.save()
        title_index(made)
        tags_index(made)
    return made


def conversation_change(*, user_id: int, public_id: str, version: int, fields: Mapping[str, Any]) -> Conversation:
    """Change title, folder, tags, pin, archive or settings. Raises ApiError, Conflict from an old version."""
    with transaction.atomic():
        space = space_lock(user_id)
        found = conversation_get(user_id=user_id, public_id=public_id)
        if found.version != version:
            message = f"version must be {found.version}, the present one: the conversation was changed elsewhere"
            raise Conflict(f"{message}; read it again", "version")
        title, tags = found.title, found.tags
        num_more = _fields_set(found, fields)
        space_take(space, num_more)
        found.num_bytes += num_more
        found.version += 1
        found.save(update_fields=[*CHANGED, "num_bytes", "version"])
        if found.title != title:
            title_index(found)
        if found.tags != tags:
            tags_index(found)
    return found


def conversations_change(
    *, user_id: int, public_ids: Collection[str], folder: str | None = None, is_archived: bool | None = None
) -> list[Former]:
    """Move conversations into a folder, or archive them or not. Return how those were that have changed.

    It needs no version: what it sets hides no change of somebody else. Raises QuotaExceeded.
    """
    fields = {"folder": folder, "is_archived": is_archived}
    formers = []
    with transaction.atomic():
        space = space_lock(user_id)
        own = Conversation.objects.filter(user_id=user_id, public_id__in=public_ids, deleted_at=None)
        for row in own.order_by("pk"):
            former = Former(row.public_id, row.folder, row.archived_at is not None)
            changed = {name: value for name, value in fields.items() if value not in (None, getattr(former, name))}
            if not changed:
                continue
            num_more = _fields_set(row, changed)
            space_take(space, num_more)
            row.num_bytes += num_more
            row.version += 1
            row.save(update_fields=["folder", "archived_at", "num_bytes", "version"])
            formers.append(former)
    return formers


def conversation_show(*, user_id: int, public_id: str, head: str) -> Conversation:
    """Set the last turn that is shown; the last tab to do so wins. Raises ApiError."""
    found = conversation_get(user_id=user_id, public_id=public_id)
    if not found.turns.filter(public_id=head).exists():
        raise ApiError("invalid_value", "head must be the id of a turn of the conversation", "head")
    Conversation.objects.filter(pk=found.pk).update(head=head)
    found.head = head
    return found


def conversations_delete(*, user_id: int, public_ids: Collection[str]) -> int:
    """Delete conversations, which can be restored for a day; their links end at once. Return how many.

    Their bytes are free at once, and are needed again to restore them.
    """
    return _set_deleted(user_id, public_ids, is_deleted=True)


def conversations_restore(*, user_id: int, public_ids: Collection[str]) -> int:
    """Restore deleted conversations and return how many. Raises QuotaExceeded."""
    return _set_deleted(user_id, public_ids, is_deleted=False)


def _set_deleted(user_id: int, public_ids: Collection[str], *, is_deleted: bool) -> int:
    with transaction.atomic():
        space = space_lock(user_id)
        own = Conversation.objects.filter(user_id=user_id, public_id__in=public_ids, deleted_at__isnull=is_deleted)
        num_bytes: int = own.aggregate(num_bytes=Sum("num_bytes", default=0))["num_bytes"]
        space_take(space, -num_bytes if is_deleted else num_bytes)
        num_set: int = own.update(deleted_at=timezone.now() if is_deleted else None)
    return num_set


def conversations_page(
    *,
    user_id: int,
    view: str = "current",
    folder: str = "",
    limit: int,
    after: str = "",
    filters: Filters = NO_FILTERS,
) -> tuple[list[Conversation], bool]:
    """Return a page of conversations, the latest changed first, and whether there are more. Raises ApiError."""
    own = Conversation.objects.filter(user_id=user_id)
    rows = filters.narrow(own.filter(VIEWS[view]), user_id=user_id).order_by("-updated_at", "-id")
    if folder:
        rows = rows.filter(folder=folder)
    if after:
        last = own.filter(public_id=after).first()
        if last is None:
            raise ApiError("invalid_value", "after must be the id of one of your conversations", "after")
        rows = rows.filter(
            Q(updated_at__lt=last.updated_at) | Q(updated_at=last.updated_at, pk__lt=last.pk),
            updated_at__lte=last.updated_at,
        )
    page = list(rows[: limit + 1])
    return page[:limit], len(page) > limit


def folders_list(*, user_id: int) -> list[str]:
    named = Conversation.objects.filter(user_id=user_id, deleted_at=None).exclude(folder="")
    return list(named.order_by("folder").values_list("folder", flat=True).distinct())


def conversations_search(
    *, user_id: int, query: str, limit: int, before: int, filters: Filters = NO_FILTERS
) -> list[Hit]:
    """Return the latest titles and turns that have all words of the query, with positions below `before`."""
    texts = texts_matching(user_id=user_id, query=query, before=before, limit=limit, filters=filters)
    return [Hit(text.pk, text) for text in texts]


def conversations_prune(*, unchanged_since: datetime | None, deleted_before: datetime) -> int:
    """Remove conversations for good and return how many: those long deleted, and those unchanged for too long."""
    num_removed = 0
    for ripe in (Q(deleted_at__lt=deleted_before), unchanged_since and Q(updated_at__lt=unchanged_since)):
        while ripe and (num := _remove_some(Conversation.objects.filter(ripe))):
            num_removed += num
    return num_removed


def _remove_some(ripe: QuerySet[Conversation]) -> int:
    """Remove a few conversations of one user in a transaction, as other writers wait for it."""
    first = ripe.order_by("pk").first()
    if first is None:
        return 0
    with transaction.atomic():
        space = space_lock(first.user_id)
        rows = list(ripe.filter(user_id=first.user_id).order_by("pk")[:REMOVED_AT_ONCE])
        space_take(space, -sum(row.num_bytes for row in rows if row.deleted_at is None))
        Conversation.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _fields_set(conversation: Conversation, fields: Mapping[str, Any]) -> int:
    """Set the fields of a change that are there, and return by how many bytes the texts have grown."""
    before = _text_bytes(conversation)
    for name in ("title", "folder"):
        if fields.get(name) is not None:
            setattr(conversation, name, " ".join(fields[name].split()))
    if fields.get("tags") is not None:
        conversation.tags = orjson.dumps(tags_plain(fields["tags"])).decode()
    if fields.get("settings") is not None:
        conversation.settings = orjson.dumps(fields["settings"]).decode()
    now = timezone.now()
    for name, column in (("is_pinned", "pinned_at"), ("is_archived", "archived_at")):
        if fields.get(name) is not None:
            setattr(conversation, column, now if fields[name] else None)
    return _text_bytes(conversation) - before


def tags_plain(tags: Iterable[str]) -> list[str]:
    """Return tags without needless blanks, each once whatever its case: the first that was given."""
    plain: dict[str, str] = {}
    for tag in tags:
        if key := facet_key(tag):
            plain.setdefault(key, " ".join(tag.split()))
    return list(plain.values())


def _text_bytes(conversation: Conversation) -> int:
    texts = (conversation.title, conversation.folder, conversation.tags, conversation.settings)
    return sum(len(text.encode()) for text in texts)


def title_index(conversation: Conversation) -> None:
    """Let the search find the present title."""
    words = words_of(conversation.title)
    rows = SearchText.objects.filter(conversation=conversation, turn=None)
    if not rows.update(words=words) and words:
        SearchText.objects.create(user_id=conversation.user_id, conversation=conversation, words=words)


def conversation_grow(conversation: Conversation, *, num_bytes: int, num_turns: int = 0) -> None:
    """Count what its turns have grown by, as a change of now."""
    conversation.updated_at = timezone.now()
    Conversation.objects.filter(pk=conversation.pk).update(
        num_bytes=F("num_bytes") + num_bytes, num_turns=F("num_turns") + num_turns, updated_at=conversation.updated_at
    )
    conversation.num_bytes += num_bytes
    conversation.num_turns += num_turns
