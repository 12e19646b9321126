"""Audit entries of conversations that leave the page: exports, and reads by administrators. They name no content."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from chat.audit.services import Subject, audit_record


def chats_read_record(*, user_id: int, what: str, conversation_id: str = "") -> None:
    """Record that somebody else reads conversations of a user. `what`: the name of the route."""
    after = {"what": what, **({"conversation": conversation_id} if conversation_id else {})}
    audit_record(action="chats.read", on=_chats_of(user_id), after=after)


def chats_export_record(*, user_id: int, format_name: str, **what: Any) -> None:
    """Record an export of conversations of a user."""
    audit_record(action="chats.export", on=_chats_of(user_id), after={"format": format_name, **what})


def _chats_of(user_id: int) -> Subject:
    name = get_user_model().objects.filter(pk=user_id).values_list("username", flat=True).first()
    return Subject(user_id, name or "")
