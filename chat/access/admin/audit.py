"""The console's page of the audit log, as far as its reader's role goes."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from chat.access.admin.scoped import ScopedPage
from chat.access.policy import standing_of
from chat.access.roles import Act, Reach
from chat.audit.admin import AuditPage
from chat.audit.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(AuditPage, ScopedPage):
    see = Act.AUDIT_SEE

    def reached(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> QuerySet[Any]:
        """Return the entries of one's organisations, and those of the installation to the one that operates it."""
        reached = super().reached(request, queryset, act)
        standing = standing_of(request.user)
        operator = standing.operator_id
        if standing.owns_installation or operator is None or standing.reach(act, org_id=operator) < Reach.ORG:
            return reached
        return queryset.filter(Q(org_id__in=[0, *standing.orgs(act, Reach.ORG)]))
