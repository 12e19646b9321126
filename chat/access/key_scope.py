"""The keys that a user may edit in the console: those of the user's projects, with rights that the user may give."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from chat.access.checks import Right
from chat.access.models import ApiKey, Project, give_permission


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The projects, rights and priorities that a user may give to keys."""

    project_ids: frozenset[int] | None
    """None: all."""
    rights: frozenset[str]
    min_priority: int | None
    """The smallest one that may be given. None: any."""

    def covers(self, key: ApiKey) -> bool:
        """Return True if the text of this key gives the user nothing new."""
        is_own = self.project_ids is None or key.project_id in self.project_ids
        return is_own and self.may_give(key.rights) and self.may_hurry(key.min_priority)

    def may_give(self, rights: Collection[str]) -> bool:
        return self.rights.issuperset(rights)

    def may_hurry(self, priority: int) -> bool:
        return self.min_priority is None or priority >= self.min_priority

    def projects(self) -> QuerySet[Project]:
        every = Project.objects.select_related("org")
        return every if self.project_ids is None else every.filter(pk__in=self.project_ids)


def key_scope(*, user: Any) -> KeyScope:
    """Return the scope of a signed-in user. Superusers may do everything."""
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
