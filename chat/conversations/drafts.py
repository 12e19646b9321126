"""Drafts: what was typed and not sent, in a conversation or in the new chat of a user. The last writer wins.

A draft counts against the quota and goes with its conversation. It is in no export, no link and no search.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from chat.conversations.models import ChatSpace, Conversation, Draft
from chat.conversations.space import conversation_get, space_lock, space_take

MAX_DRAFT_BYTES = 256 * 1024


def draft_get(*, user_id: int, conversation: Conversation | None) -> dict[str, Any]:
    """Return the draft of a conversation or, without one, of the new chat; empty if there is none."""
    text = Draft.objects.filter(user_id=user_id, conversation=conversation).values_list("text", flat=True).first()
    draft: dict[str, Any] = orjson.loads(text or "{}")
    return draft


def draft_put(*, user_id: int, conversation_id: str | None, draft: Mapping[str, Any]) -> datetime:
    """Keep a draft in place of the one before, and return when. None stands for the new chat.

    Raises ConversationMissing and QuotaExceeded.
    """
    text = orjson.dumps(draft).decode()
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = _conversation(user_id, conversation_id)
        row = _row(user_id, conversation) or Draft(user_id=user_id, conversation=conversation, text="")
        _grow(space, conversation, len(text.encode()) - len(row.text.encode()))
        now: datetime = timezone.now()
        row.text, row.saved_at = text, now
        row.save()
    return now


def draft_clear(*, user_id: int, conversation_id: str | None) -> int:
    """Remove a draft and return how many there were. Raises ConversationMissing."""
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = _conversation(user_id, conversation_id)
        row = _row(user_id, conversation)
        if row is None:
            return 0
        _grow(space, conversation, -len(row.text.encode()))
        row.delete()
    return 1


def _conversation(user_id: int, public_id: str | None) -> Conversation | None:
    return None if public_id is None else conversation_get(user_id=user_id, public_id=public_id)


def _row(user_id: int, conversation: Conversation | None) -> Draft | None:
    row: Draft | None = Draft.objects.filter(user_id=user_id, conversation=conversation).first()
    return row


def _grow(space: ChatSpace, conversation: Conversation | None, num_bytes: int) -> None:
    """Count bytes of a draft. Typing is no change of a conversation: it keeps its place in the history."""
    space_take(space, num_bytes)
    if conversation is not None:
        Conversation.objects.filter(pk=conversation.pk).update(num_bytes=F("num_bytes") + num_bytes)
