"""The bytes that the conversations of an account take, and the errors of conversations that routes share."""

from __future__ import annotations

from django.conf import settings

from chat.conversations.models import ChatSpace, Conversation
from chat.errors import ApiError


class ConversationMissing(ApiError):
    """Raised if the user has no such conversation, whoever else may have one of this id."""

    def __init__(self) -> None:
        super().__init__("not_found", "You have no conversation of this id.", "conversation")


class Conflict(ApiError):
    """Raised if somebody else, as another tab, has changed what is being changed."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__("conflict", message, param)


class QuotaExceeded(ApiError):
    """Raised beyond LIGHTCONE_CHAT_QUOTA_BYTES."""

    def __init__(self) -> None:
        limit = settings.LIGHTCONE_CHAT_QUOTA_BYTES
        message = f"Your conversations may take {limit} bytes together, and this does not fit; delete some."
        super().__init__("insufficient_quota", message, limit=limit)


def space_lock(user_id: int) -> ChatSpace:
    """Lock the space of a user until the transaction ends: writers of one user wait for each other."""
    ChatSpace.objects.get_or_create(user_id=user_id)
    space: ChatSpace = ChatSpace.objects.select_for_update(no_key=True).get(user_id=user_id)
    return space


def space_take(space: ChatSpace, num_bytes: int) -> None:
    """Add bytes to a locked space, or give them back if negative. Raises QuotaExceeded."""
    if num_bytes > 0 and space.num_bytes + num_bytes > settings.LIGHTCONE_CHAT_QUOTA_BYTES:
        raise QuotaExceeded
    space.num_bytes = max(0, space.num_bytes + num_bytes)
    space.save(update_fields=["num_bytes"])


def conversation_get(*, user_id: int, public_id: str) -> Conversation:
    """Return a conversation that is not deleted. Raises ConversationMissing."""
    found: Conversation | None = Conversation.objects.filter(
        user_id=user_id, public_id=public_id, deleted_at=None
    ).first()
    if found is None:
        raise ConversationMissing
    return found
