"""Whose usage a person sees, by the policy of roles: the whole of some organisations, one's own in others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from chat.access.policy import standing_of, visible
from chat.access.roles import Act, Reach
from chat.usage.models import UsageSum, UsageTotal


@dataclass(frozen=True, slots=True)
class UsageScope:
    """What a person sees: by organisations as a whole, or sums that are told apart further."""

    sums: QuerySet[UsageSum]
    totals: QuerySet[UsageTotal] | None
    """None: some of what is seen is a part of an organisation, which totals do not know."""
    is_own: bool
    """Whether one's own usage is all that is seen."""


def own_usage(user: Any) -> Q:
    """Return the condition of a person's own usage: chats, and runs of keys that were the person's at that time."""
    return Q(account_id=user.pk)


def usage_scope(user: Any) -> UsageScope:
    """Return what a person sees of the usage."""
    standing, act = standing_of(user), Act.USAGE_SEE
    sums = visible(UsageSum.objects.all(), user, act, own=own_usage(user))
    if standing.owns_installation:
        return UsageScope(sums, UsageTotal.objects.all(), is_own=False)
    whole, parts = standing.orgs(act, Reach.ORG), [*standing.orgs(act, Reach.PROJECTS), *standing.orgs(act, Reach.OWN)]
    totals = None if parts else UsageTotal.objects.filter(org_id__in=whole)
    return UsageScope(sums, totals, is_own=not whole and not standing.orgs(act, Reach.PROJECTS))
