"""Queries of keys, projects and organisations for pages and commands. Requests use the cached look-ups of `keys.py`."""

from __future__ import annotations

from django.db.models import OuterRef, QuerySet, Subquery

from chat.access.models import ApiKey, ApiKeySecret, Project


def keys_listed() -> QuerySet[ApiKey]:
    """Return keys that are not deleted, with project, organisation and `last4`, the end of the newest secret."""
    newest = ApiKeySecret.objects.filter(key=OuterRef("pk")).order_by("-id").values("last4")[:1]
    return ApiKey.objects.filter(deleted_at=None).select_related("project__org").annotate(last4=Subquery(newest))


def key_choices() -> list[tuple[str, str]]:
    """Return (key id, label) of the 200 newest keys, deleted ones included."""
    return [
        (public_id, f"{name} ({public_id})")
        for public_id, name in ApiKey.objects.values_list("public_id", "name")[:200]
    ]


def project_names() -> dict[int, str]:
    """Return `organisation / project` by project id."""
    return {pk: f"{org} / {name}" for pk, org, name in Project.objects.values_list("pk", "org__name", "name")}
