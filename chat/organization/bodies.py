"""The bodies of the routes of /v1/organization."""

from __future__ import annotations

from rest_framework import serializers

from chat.access.limit_columns import MAX_LIMIT
from chat.access.roles import Role
from chat.api.request.fields import Array, Boolean, Integer, Record, RequestField, Text

MAX_NAME_CHARS = 120
MAX_SECONDS = 10 * 365 * 86_400
RATE_COLUMNS = {
    "max_requests_per_1_minute": "requests_per_minute",
    "max_tokens_per_1_minute": "tokens_per_minute",
    "max_requests_per_1_day": "requests_per_day",
}
"""The column of a project by the name that OpenAI has for its limit."""
READER = "reader"
"""What OpenAI's clients call who is no owner."""
ROLES: dict[str, Role] = {**{role: Role(role) for role in Role.values}, READER: Role(Role.MEMBER)}


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


class InvitedProject(Record):
    parts = {
        "id": Text("A project.", max_chars=40, is_required=True),
        "role": project_role_field(is_required=True),
    }


class InviteCreate(serializers.Serializer):
    """The body of `POST /v1/organization/invites`."""

    email = Text("Whom to invite.", max_chars=254, is_label=True, is_filled=True, is_required=True)
    role = role_field(is_required=True)
    projects = Array(
        InvitedProject().run_validation,
        item_schema=dict(InvitedProject.json_schema),
        max_items=100,
        help_text="Where the person may make keys of their own.",
    )


class ServiceAccountCreate(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/service_accounts`."""

    name = name_field("What usage and the request log call it; its first key has the same name.")
    create_service_account_only = Boolean("Make no key.")
    expires_in_seconds = seconds_field("How long the key is valid; absent: for ever.")


class ServiceAccountModify(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/service_accounts/ID`."""

    name = name_field("The new name.")


class ServiceAccountKeyCreate(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/service_accounts/ID/api_keys`."""

    name = Text(
        "What people call the key; absent: as the account.", max_chars=MAX_NAME_CHARS, is_label=True, is_filled=True
    )
    expires_in_seconds = seconds_field("How long it is valid; absent: for ever.")


def rate_field(help_text: str) -> RequestField:
    return Integer(f"{help_text} Null lifts the limit; what is left out stays.", minimum=1, maximum=MAX_LIMIT)


class RateLimitModify(serializers.Serializer):
    """The body of `POST /v1/organization/projects/ID/rate_limits/ID`."""

    max_requests_per_1_minute = rate_field("Requests a minute.")
    max_tokens_per_1_minute = rate_field("Prompt and completion tokens a minute.")
    max_requests_per_1_day = rate_field("Requests a day.")
