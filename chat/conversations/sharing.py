"""Links to read a conversation without an account. Each shows a frozen copy, until it is revoked or expires.

A copy has the title and the texts that were shown: no parameters, no attachments, no other branches. It says how many
images and files it leaves out. Of a token only the hash is stored, so that the database reveals no link. A link may ask
for a password, whose tries are counted as those to sign in are.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import orjson
from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from chat.access.accounts import chats_may_be_shared
from chat.access.sign_in import SignIn, sign_in_begin, sign_in_fail, sign_in_succeed
from chat.audit.services import Subject, audit_record
from chat.conversations.content import content_text, num_media, question_title, title_of
from chat.conversations.models import Conversation, ShareLink, Turn
from chat.conversations.services import ROW_BYTES
from chat.conversations.space import conversation_get, space_lock, space_take
from chat.conversations.turns import TurnShown, body_of, turns_shown
from chat.errors import ApiError

MAX_LINKS = 32
"""Of a conversation."""
MAX_PASSWORD_CHARS = 128


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link just made. Its token cannot be read again."""

    link: ShareLink
    token: str


class PasswordWanted(ApiError):
    """Raised if a link asks for a password, and none or a wrong one was given. `wait_s`: there were too many tries."""

    def __init__(self, *, is_wrong: bool = False, wait_s: int = 0) -> None:
        super().__init__("permission_denied", "This link asks for a password; read it at /shared/ and its token.")
        self.is_wrong, self.wait_s = is_wrong, wait_s


def link_create(*, user_id: int, conversation_id: str, lives_s: int | None, password: str = "") -> NewLink:
    """Create a link to a copy of what the conversation shows now. Raises ApiError.

    `lives_s` None: until revoked. `password`: what readers are asked for, empty for nothing.
    """
    if not chats_may_be_shared(user=_conversation_for_link(user_id, conversation_id).user):
        message = "Links to chats are switched off for your project or this server; export the chat instead."
        raise ApiError("permission_denied", message)
    hashed = make_password(password) if password else ""  # takes long: neither under the lock nor in vain
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = _conversation_for_link(user_id, conversation_id)
        turns = [copy for turn in turns_shown(conversation=conversation) if (copy := _turn_copy(turn))]
        snapshot = orjson.dumps({"title": _title(conversation), "turns": turns}).decode()
        num_bytes = ROW_BYTES + len(snapshot.encode())
        space_take(space, num_bytes)
        _count(conversation, num_bytes)
        token = secrets.token_urlsafe(32)
        expires_at = None if lives_s is None else timezone.now() + timedelta(seconds=lives_s)
        link = conversation.links.create(
            digest=_digest(token), snapshot=snapshot, expires_at=expires_at, password=hashed
        )
        after = {"conversation": conversation_id, "expires_at": expires_at, "password": hashed}
        audit_record(action="link.create", on=Subject(link.pk, str(link.pk)), after=after)
    return NewLink(link, token)


def links_list(*, user_id: int, conversation_id: str) -> list[ShareLink]:
    """Return the links of a conversation, expired ones too, the newest first. Raises ConversationMissing."""
    return list(conversation_get(user_id=user_id, public_id=conversation_id).links.order_by("-id"))


def link_revoke(*, user_id: int, conversation_id: str, link_id: int) -> None:
    """Revoke a link and remove its copy. Raises ApiError."""
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = conversation_get(user_id=user_id, public_id=conversation_id)
        link: ShareLink | None = conversation.links.filter(pk=link_id).first()
        if link is None:
            raise ApiError("not_found", "The conversation has no link of this id.", "link")
        num_bytes = ROW_BYTES + len(link.snapshot.encode())
        space_take(space, -num_bytes)
        _count(conversation, -num_bytes)
        before = {"conversation": conversation_id, "expires_at": link.expires_at, "password": link.password}
        audit_record(action="link.revoke", on=Subject(link.pk, str(link.pk)), before=before)
        link.delete()


def link_read(*, token: str) -> dict[str, Any]:
    """Return title and turns of the copy behind a token.

    Raises ApiError if no link that works has it, and PasswordWanted.
    """
    link = _link_working(token)
    if link.password:
        raise PasswordWanted
    return _copy(link)


def link_unlock(*, token: str, password: str, address: str) -> dict[str, Any]:
    """Return the copy behind a token to a reader who gives the password. Raises as `link_read` does.

    `address`: where the reader is, as tries are counted.
    """
    link = _link_working(token)
    if not link.password:
        return _copy(link)
    tried = SignIn(f"\0/shared/{link.pk}", address)
    begun = sign_in_begin(tried=tried)
    if begun.wait_s:
        raise PasswordWanted(wait_s=begun.wait_s)
    if len(password) > MAX_PASSWORD_CHARS or not check_password(password, link.password):
        sign_in_fail(tried=tried)
        raise PasswordWanted(is_wrong=True)
    sign_in_succeed(tried=tried, begun=begun)
    return _copy(link)


def _turn_copy(turn: TurnShown) -> dict[str, Any] | None:
    """Return what a copy has of a turn: its text, and how many files it leaves out; None if there is neither."""
    num_images, num_files = num_media(turn.body.get("content"))
    if not turn.typed and not num_images and not num_files:
        return None
    left_out = {name: num for name, num in (("num_images", num_images), ("num_files", num_files)) if num}
    return {"role": turn.role, "text": turn.typed, **left_out}


def _conversation_for_link(user_id: int, conversation_id: str) -> Conversation:
    """Return a conversation that may have one more link. Raises ApiError."""
    conversation = conversation_get(user_id=user_id, public_id=conversation_id)
    if conversation.links.count() >= MAX_LINKS:
        message = f"A conversation may have {MAX_LINKS} links; revoke one."
        raise ApiError("insufficient_quota", message, limit=MAX_LINKS)
    return conversation


def _title(conversation: Conversation) -> str:
    """Return the title for everybody. Older ones that were cut from an attached file are made of what was typed."""
    asked: Turn | None = conversation.turns.filter(role="user").order_by("id").first()
    content = None if asked is None else body_of(asked).get("content")
    is_cut = conversation.title == title_of(content_text(content))
    return question_title(content) if is_cut else conversation.title


def _link_working(token: str) -> ShareLink:
    is_working = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    links = ShareLink.objects.select_related("conversation__user")
    link: ShareLink | None = links.filter(
        is_working, digest=_digest(token), conversation__deleted_at=None, conversation__user__is_active=True
    ).first()
    if link is None or not chats_may_be_shared(user=link.conversation.user):
        raise ApiError("not_found", "There is no such link, or it was revoked or has expired.")
    return link


def _copy(link: ShareLink) -> dict[str, Any]:
    snapshot: dict[str, Any] = orjson.loads(link.snapshot)
    return snapshot | {"shared_at": link.created_at.timestamp()}


def _count(conversation: Conversation, num_bytes: int) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(num_bytes=F("num_bytes") + num_bytes)


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()
