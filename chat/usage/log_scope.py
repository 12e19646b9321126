"""Whose requests a person sees, and by which index of the log these are found newest first.

A list of a large table must walk one index in its order. Databases without statistics take any index that fits, so all
conditions but one are written such that no index fits them: `unindexed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from chat.access.policy import standing_of, visible
from chat.access.roles import Act, Reach
from chat.usage.models import RequestLog

NO_ROW = -1
SCOPE = {"log_org": "org_id", "log_project": "project_id", "log_account": "account_id"}


def unindexed(rows: QuerySet[RequestLog], **values: Any) -> QuerySet[RequestLog]:
    """Keep the rows whose columns have these values, by conditions that use no index."""
    named = {f"is_{name}": value for name, value in values.items()}
    return rows.alias(**{f"is_{name}": _hidden(name) for name in values}).filter(**named)


def _hidden(name: str) -> Coalesce:
    is_text = RequestLog._meta.get_field(name).get_internal_type() == "CharField"
    return Coalesce(F(name), Value("" if is_text else NO_ROW))


def logs_reached(rows: QuerySet[RequestLog], user: Any, act: Act = Act.LOGS_SEE) -> QuerySet[RequestLog]:
    """Return the requests that a user's act reaches: of whole organisations, or those of chats and keys of one's own.

    No index is used for it; `scope_columns` names the one that fits.
    """
    if standing_of(user).owns_installation:
        return rows
    rows = rows.alias(**{alias: _hidden(name) for alias, name in SCOPE.items()})
    return visible(rows, user, act, org="log_org", project="log_project", own=Q(log_account=user.pk))


def scope_columns(user: Any, act: Act = Act.LOGS_SEE) -> Mapping[str, Any]:
    """Return the value of the one indexed column that all rows of the user share; nothing if there is none."""
    standing = standing_of(user)
    if standing.owns_installation:
        return {}
    whole, own = standing.orgs(act, Reach.ORG), standing.orgs(act, Reach.OWN)
    if not whole:
        return {"account_id": user.pk}
    return {"org_id": whole[0]} if len(whole) == 1 and not own else {}
