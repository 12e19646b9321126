"""The routes of rate limits. A project has one set of them for all models, so the list has one entry."""

from __future__ import annotations

from typing import Any

from chat.access.models import Project
from chat.access.projects import project_limit
from chat.access.roles import Act
from chat.api.queries import MAX_LIMIT, after_unknown, list_object, query_integer
from chat.api.request.fields import bad_value, echo
from chat.organization.bodies import RATE_COLUMNS, RateLimitModify
from chat.organization.frame import Asked, Does, admin_view, missing
from chat.organization.projects import project_found

ID = "rl-all-models"


def limits_list(asked: Asked, project_id: str) -> dict[str, Any]:
    entries = [limit_object(project_found(asked, project_id))]
    query_integer(asked.request, "limit", 100, minimum=1, maximum=MAX_LIMIT)
    after, before = (asked.request.GET.get(name, "") for name in ("after", "before"))
    if after not in ("", ID):
        raise after_unknown(after)
    if before not in ("", ID):
        raise bad_value("before", f"must be the id of an entry of this list, got {echo(before)}")
    return list_object([] if after or before else entries, has_more=False)


def limit_modify(asked: Asked, project_id: str, rate_limit_id: str) -> dict[str, Any]:
    """Set the limits that were sent; null lifts one."""
    project = project_found(asked, project_id)
    if rate_limit_id != ID:
        raise missing("rate limit of this project", rate_limit_id, f"projects/{project_id}/rate_limits")
    limits = {RATE_COLUMNS[name]: limit for name, limit in asked.values.items()}
    project_limit(project=project, limits=limits, actor=asked.person)
    return limit_object(project)


def limit_object(project: Project) -> dict[str, Any]:
    limits = {name: getattr(project, column) for name, column in RATE_COLUMNS.items()}
    return {"id": ID, "object": "project.rate_limit", "model": "*", **limits}


rate_limits = admin_view(get=Does(limits_list, Act.PROJECTS_SEE, query=("after", "before", "limit")))
rate_limit = admin_view(post=Does(limit_modify, Act.LIMITS_MANAGE, RateLimitModify()))
