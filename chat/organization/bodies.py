"""The bodies of the routes of /v1/organization."""

from __future__ import annotations

from rest_framework import serializers

from chat.access.roles import Role
from chat.api.request.fields import Integer, RequestField, Text

MAX_NAME_CHARS = 120
MAX_SECONDS = 10 * 365 * 86_400
READER = "reader"
"""What OpenAI's clients call who is no owner."""
ROLES = {**{role: Role(role) for role in Role.values}, READER: Role.MEMBER}


def name_field(help_text: str) -> RequestField:
    return Text(help_text, max_chars=MAX_NAME_CHARS, is_label=True, is_filled=True, is_required=True)


def seconds_field(help_text: str) -> RequestField:
    return Integer(help_text, minimum=1, maximum=MAX_SECONDS)


def role_field(*, is_required: bool) -> RequestField:
    return Text(
        f"One of {', '.join(Role.values)}; {READER}, which OpenAI's clients know, is {Role.MEMBER}.",
        choices=tuple(ROLES),
        is_required=is_required,
    )


def project_role_field(*, is_required: bool) -> RequestField:
    help_text = "`owner` for owners and admins of the organisation, who manage every project; else `member`."
    return Text(help_text, choices=("member", "owner"), is_required=is_required)


class AdminKeyCreate(serializers.Serializer):
    """The body of `POST /v1/organization/admin_api_keys`."""

    name = name_field("What people call the key.")
    expires_in_seconds = seconds_field("How long it is valid; absent: as long as the key that makes it.")


class ProjectCreate(serializers.Serializer):
    """The body of `POST /v1/organization/projects`."""

    name = name_field("What people call the project.")


class ProjectModify(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID`."""

    name = name_field("The new name.")


class ProjectUserAdd(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/users`: `user_id` or `email`, of a member of the organisation."""

    user_id = Text("Whom to add.", max_chars=40)
    email = Text("Whom to add, by the address of the account.", max_chars=254)
    role = project_role_field(is_required=True)


class ProjectUserModify(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/users/ID`."""

    role = project_role_field(is_required=True)


class UserModify(serializers.Serializer):
    """The body of `POST /v1/organization/users/ID`."""

    role = role_field(is_required=True)
