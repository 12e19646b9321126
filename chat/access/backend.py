"""Django's permissions as the policy of roles gives them, so that no page asks anything else.

Rows of Django's own permissions and groups have no effect.
"""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async
from django.contrib.auth.backends import ModelBackend

from chat.access.policy import standing_of
from chat.access.roles import Act, Reach

SEE_AND_MANAGE: dict[str, tuple[Act, Act]] = {
    "auth.user": (Act.PEOPLE_SEE, Act.PEOPLE_MANAGE),
    "chat.membership": (Act.PEOPLE_SEE, Act.PEOPLE_MANAGE),
    "chat.invitation": (Act.PEOPLE_SEE, Act.PEOPLE_MANAGE),
    "chat.project": (Act.PROJECTS_SEE, Act.PROJECTS_MANAGE),
    "chat.serviceaccount": (Act.PROJECTS_SEE, Act.PROJECTS_MANAGE),
    "chat.apikey": (Act.KEYS_SEE, Act.KEYS_MANAGE),
    "chat.adminkey": (Act.ADMIN_KEYS_SEE, Act.ADMIN_KEYS_MANAGE),
    "chat.budget": (Act.USAGE_SEE, Act.BUDGETS_MANAGE),
    "chat.alert": (Act.USAGE_SEE, Act.BUDGETS_MANAGE),
    "chat.alertchannel": (Act.USAGE_SEE, Act.BUDGETS_MANAGE),
    "chat.alertdelivery": (Act.USAGE_SEE, Act.BUDGETS_MANAGE),
    "chat.alertrule": (Act.ALERTS_SEE, Act.ALERTS_MANAGE),
    "chat.batch": (Act.BATCHES_SEE, Act.BATCHES_MANAGE),
    "chat.projectfile": (Act.BATCHES_SEE, Act.BATCHES_MANAGE),
    "chat.servedmodel": (Act.MODELS_SEE, Act.MODELS_MANAGE),
    "chat.modelprice": (Act.MODELS_SEE, Act.MODELS_MANAGE),
    "chat.modeladapter": (Act.MODELS_SEE, Act.MODELS_MANAGE),
    "chat.weightedalias": (Act.MODELS_SEE, Act.MODELS_MANAGE),
    "chat.modeljob": (Act.MODELS_SEE, Act.MODELS_MANAGE),
}
"""The acts behind the four permissions of a table."""


def _permissions() -> dict[str, Act]:
    acts = {
        "chat.view_org": Act.PROJECTS_SEE,
        "chat.change_org": Act.ORG_CHANGE,
        "chat.view_requestlog": Act.LOGS_SEE,
        "chat.view_auditentry": Act.AUDIT_SEE,
        "chat.see_system": Act.SYSTEM_SEE,
        "chat.see_workers": Act.WORKERS_SEE,
    }
    for table, (see, manage) in SEE_AND_MANAGE.items():
        app_label, name = table.split(".")
        acts |= {f"{app_label}.{verb}_{name}": manage for verb in ("add", "change", "delete")}
        acts[f"{app_label}.view_{name}"] = see
    return acts


PERMISSIONS = _permissions()
"""The act behind each permission that somebody who is no superuser can have."""


class PolicyBackend(ModelBackend):
    """Sign-in by Django's passwords, permissions by roles."""

    def get_user_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """Return the permissions that a user has in any organisation. Lists and pages narrow them to their rows."""
        if obj is not None:
            return set()
        standing = standing_of(user_obj)
        return {name for name, act in PERMISSIONS.items() if standing.reach(act) > Reach.NONE}

    def get_group_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return set()

    # Django's asynchronous methods read the rows themselves.

    async def aget_user_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return await database_sync_to_async(self.get_user_permissions)(user_obj, obj)

    async def aget_group_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return set()
