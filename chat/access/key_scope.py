"""What a person may give to keys: projects, rights and priorities, by the person's roles."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models import Q, QuerySet

from chat.access.checks import Right
from chat.access.models import ApiKey, Project
from chat.access.policy import Standing, may, standing_of, visible
from chat.access.roles import Act, Reach

NEEDS: dict[str, tuple[Act, Reach]] = {
    str(Right.INFERENCE): (Act.KEYS_MANAGE, Reach.OWN),
    str(Right.USAGE_READ): (Act.USAGE_SEE, Reach.ORG),
    str(Right.KEYS_MANAGE): (Act.KEYS_MANAGE, Reach.ORG),
    str(Right.MODELS_MANAGE): (Act.MODELS_MANAGE, Reach.ORG),
    str(Right.CHAT_TEMPLATE): (Act.SYSTEM_TRUST, Reach.ORG),
    str(Right.LOGITS_PROCESSORS): (Act.SYSTEM_TRUST, Reach.ORG),
    str(Right.MM_KWARGS): (Act.SYSTEM_TRUST, Reach.ORG),
    str(Right.MEDIA_FETCH): (Act.SYSTEM_TRUST, Reach.ORG),
    str(Right.EMBEDS): (Act.SYSTEM_TRUST, Reach.ORG),
}
"""What somebody must be able to do, and how far, to give a key this right."""


class KeyScope:
    """The keys of others and the own ones that a person sees and manages."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.standing: Standing = standing_of(user)

    def covers(self, key: ApiKey) -> bool:
        """Return True if the person manages this key, and its text gives nothing new."""
        org_id = key.project.org_id
        reach = self.standing.reach(Act.KEYS_MANAGE, org_id=org_id)
        is_reached = reach == Reach.ORG or (reach == Reach.OWN and key.owner_id == self.standing.user_id)
        return is_reached and self.may_give(key.rights, org_id=org_id) and self.may_hurry(key.min_priority)

    def may_give(self, rights: Collection[str], *, org_id: int | None = None) -> bool:
        return all(may(self.user, act, org_id=org_id, least=least) for act, least in (NEEDS[right] for right in rights))

    def may_hurry(self, priority: int) -> bool:
        return priority >= 0 or may(self.user, Act.SYSTEM_TRUST, least=Reach.ORG)

    def owns_only(self, *, org_id: int) -> bool:
        """Return True if the person's keys in this organisation are always the person's own."""
        return self.standing.reach(Act.KEYS_MANAGE, org_id=org_id) < Reach.ORG

    def projects(self) -> QuerySet[Project]:
        """Return the projects in which the person makes keys."""
        mine = Q(pk__in=self.standing.project_ids)
        projects = Project.objects.select_related("org").filter(archived_at=None)
        return visible(projects, self.user, Act.KEYS_MANAGE, project="pk", own=mine)


def own_keys(user: Any) -> Q:
    """Return the condition of the person's own keys."""
    return Q(owner=user)


def of_own_keys(user: Any) -> Q:
    """Return the condition of rows that name one of the person's own keys by its key id.

    The few ids are read first: for a subquery PostgreSQL reads the whole table of requests.
    """
    return Q(key_public_id__in=list(ApiKey.objects.filter(own_keys(user)).values_list("public_id", flat=True)))


def may_own(user: Any, key: ApiKey) -> bool:
    """Return True if the person could make this key today: in its project, with its rights and its priority."""
    standing, project = standing_of(user), key.project
    reach = standing.reach(Act.KEYS_MANAGE, org_id=project.org_id)
    is_reached = reach == Reach.ORG or (reach == Reach.OWN and project.pk in standing.project_ids)
    scope = KeyScope(user)
    return is_reached and scope.may_give(key.rights, org_id=project.org_id) and scope.may_hurry(key.min_priority)
