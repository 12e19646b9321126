"""People of tests: accounts with a role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from chat.access.chat_projects import default_project
from chat.access.memberships import membership_create
from chat.access.roles import Role
from chat.models import Org


def member(name: str, role: str = "member", *, org: Org | None = None, may_chat: bool = True, **fields: Any) -> User:
    """Make an account with a role in an organisation, the first one if none is given."""
    user = User.objects.create_user(name, **fields)
    membership_create(user=user, org=org or default_project().org, role=Role(role), may_chat=may_chat)
    return user
