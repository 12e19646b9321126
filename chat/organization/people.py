"""The routes of the people of the organisation."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from chat.access.memberships import membership_change, membership_delete
from chat.access.models import Membership
from chat.access.roles import Act
from chat.api.request.fields import bad_value
from chat.organization.bodies import ROLES, UserModify
from chat.organization.frame import (
    PAGING,
    USER,
    Asked,
    Does,
    admin_view,
    deleted,
    each,
    id_read,
    missing,
    page_answer,
    unix_seconds,
)

KIND = "organization.user"
MAX_EMAILS = 100


def users_list(asked: Asked) -> dict[str, Any]:
    rows = _people(asked)
    if emails := asked.texts("emails"):
        if len(emails) > MAX_EMAILS:
            raise bad_value("emails", f"must have at most {MAX_EMAILS} values, got {len(emails)}")
        chosen = Q()
        for email in emails:
            chosen |= Q(user__email__iexact=email)
        rows = rows.filter(chosen)
    return page_answer(asked, rows, each(user_object), prefix=USER, column="user_id")


def user_retrieve(asked: Asked, user_id: str) -> dict[str, Any]:
    return user_object(_member(asked, user_id))


def user_modify(asked: Asked, user_id: str) -> dict[str, Any]:
    membership = _member(asked, user_id)
    role = ROLES[asked.values["role"]]
    membership_change(membership=membership, role=role, actor=asked.person)
    return user_object(membership)


def user_delete(asked: Asked, user_id: str) -> dict[str, Any]:
    """Take the person out of the organisation. The account stays, as it may belong to others."""
    membership_delete(membership=_member(asked, user_id), actor=asked.person)
    return deleted(KIND, user_id)


def _people(asked: Asked) -> Any:
    return Membership.objects.filter(org=asked.org).select_related("user")


def _member(asked: Asked, user_id: str) -> Membership:
    found: Membership | None = _people(asked).filter(user=id_read(USER, user_id)).first()
    if found is None:
        raise missing("user", user_id, "users")
    return found


def user_object(membership: Membership) -> dict[str, Any]:
    user = membership.user
    name = user.get_full_name() or user.get_username()
    id_ = f"{USER}{user.pk}"
    return {
        "id": id_,
        "object": KIND,
        "name": name,
        "email": user.email,
        "role": membership.role,
        "added_at": unix_seconds(membership.created_at),
        "created": unix_seconds(user.date_joined),
        "is_service_account": False,
        "user": {"id": id_, "object": "user", "name": name, "email": user.email, "enabled": user.is_active},
    }


users = admin_view(get=Does(users_list, Act.PEOPLE_SEE, query=(*PAGING, "emails")))
user = admin_view(
    get=Does(user_retrieve, Act.PEOPLE_SEE),
    post=Does(user_modify, Act.PEOPLE_MANAGE, UserModify()),
    delete=Does(user_delete, Act.PEOPLE_MANAGE),
)
