"""Queries of keys, projects and organisations for pages and commands. Requests use the cached look-ups of `keys.py`."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from chat.access.key_scope import own_keys
from chat.access.models import ApiKey, ApiKeySecret, Project
from chat.access.policy import visible
from chat.access.roles import Act


def keys_listed() -> QuerySet[ApiKey]:
    """Return keys that are not deleted, with project, organisation and `last4`, the end of the newest secret."""
    newest = ApiKeySecret.objects.filter(key=OuterRef("pk")).order_by("-id").values("last4")[:1]
    return (
        ApiKey.objects.filter(deleted_at=None)
        .select_related("project__org", "owner", "service_account")
        .annotate(last4=Subquery(newest))
    )


def key_choices(user: Any) -> list[tuple[str, str]]:
    """Return (key id, label) of the 200 newest keys that a user sees, deleted ones included."""
    keys = keys_seen(user).values_list("public_id", "name")[:200]
    return [(public_id, f"{name} ({public_id})") for public_id, name in keys]


def keys_seen(user: Any) -> QuerySet[ApiKey]:
    """Return the keys that a user sees, deleted ones included."""
    return visible(ApiKey.objects.all(), user, Act.KEYS_SEE, org="project__org_id", own=own_keys(user))


def projects_seen(user: Any) -> QuerySet[Project]:
    return visible(Project.objects.all(), user, Act.PROJECTS_SEE, project="pk")


def project_names(user: Any) -> dict[int, str]:
    """Return `organisation / project` by id, of the projects that a user sees."""
    projects = projects_seen(user).values_list("pk", "org__name", "name")
    return {pk: f"{org} / {name}" for pk, org, name in projects}


def project_name(project_id: int) -> str:
    """Return `organisation / project`, or a dash for a project that is gone."""
    project = Project.objects.filter(pk=project_id).select_related("org").first()
    return f"{project.org} / {project}" if project else "–"
