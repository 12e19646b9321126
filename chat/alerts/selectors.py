"""Which alerts, channels and deliveries a person sees and manages: the installation's, and those of organisations."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from chat.access.policy import may, orgs_reached, standing_of, visible
from chat.access.roles import Act, Reach
from chat.alerts.models import Alert

SEE, MANAGE = Act.USAGE_SEE, Act.BUDGETS_MANAGE
"""The acts on what belongs to an organisation. What belongs to none goes by ALERTS_SEE and ALERTS_MANAGE."""
MOST_SHOWN = 20


def alerts_reached(queryset: QuerySet[Any], user: Any, act: Act) -> QuerySet[Any]:
    """Return the rows of `org` that a person sees or manages, by `act`: SEE or MANAGE."""
    rows = visible(queryset, user, act)
    if standing_of(user).reach(Act.ALERTS_SEE if act == SEE else Act.ALERTS_MANAGE) == Reach.ORG:
        rows = rows | queryset.filter(org=None)
    return rows


def open_alerts(user: Any) -> list[Alert]:
    """Return the newest open alerts that a person sees."""
    firing = Alert.objects.filter(ended_at=None, fired_at__isnull=False)
    return list(alerts_reached(firing, user, SEE).order_by("-pk")[:MOST_SHOWN])


def may_manage_installation(user: Any) -> bool:
    return may(user, Act.ALERTS_MANAGE, least=Reach.ORG)


def orgs_managed(user: Any) -> QuerySet[Any]:
    return orgs_reached(user, MANAGE)
