"""Which keys a person may make and change in the console: those of projects that he is a member of, with no more than he may give.

Superusers may do everything. What acts a person may do on keys at all are Django's permissions, which the pages ask for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from chat.access.models import ApiKey, Project, Right, give_permission


@dataclass(frozen=True, slots=True)
class KeyScope:
    """`project_ids` None: every project. `min_priority` None: every priority, else the smallest that may be given."""

    project_ids: frozenset[int] | None
    rights: frozenset[str]
    min_priority: int | None

    def has_project(self, project_id: int) -> bool:
        return self.project_ids is None or project_id in self.project_ids

    def covers(self, key: ApiKey) -> bool:
        """Return True if the key is in the scope with all that it may do, so that having its text gives nobody more than he has."""
        return self.has_project(key.project_id) and self.may_give(key.rights) and self.may_hurry(key.min_priority)

    def may_give(self, rights: Collection[str]) -> bool:
        return self.rights.issuperset(rights)

    def may_hurry(self, priority: int) -> bool:
        return self.min_priority is None or priority >= self.min_priority

    def projects(self) -> QuerySet[Project]:
        """The projects in which keys may be made."""
        every = Project.objects.select_related("org")
        return every if self.project_ids is None else every.filter(pk__in=self.project_ids)


def key_scope(*, user: Any) -> KeyScope:
    """The scope of a signed-in person."""
    if user.is_active and user.is_superuser:
        return KeyScope(None, frozenset(Right.values), None)
    given = {
        right for right in Right.values if right == Right.INFERENCE or user.has_perm(f"chat.{give_permission(right)}")
    }
    return KeyScope(
        project_ids=frozenset(user.projects.values_list("pk", flat=True)),
        rights=frozenset(given),
        min_priority=None if user.has_perm("chat.give_urgency") else 0,
    )
