"""Audit entries as rows of files, for the console's page and the command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from chat.audit.models import AuditEntry
from chat.audit.services import Subject, audit_record

COLUMNS = (
    *("id", "at", "actor_kind", "actor_id", "actor_name", "address", "source", "request_id", "action"),
    *("object_kind", "object_id", "object_name", "org_id", "project_id", "before", "after"),
)


def entry_values(entry: AuditEntry) -> dict[str, Any]:
    """Return the columns of an entry by name; its time in UTC."""
    values = {name: getattr(entry, name) for name in COLUMNS}
    return values | {"at": entry.at.astimezone(UTC).isoformat()}


def audit_export_record(*, format_name: str, filters: Mapping[str, Any]) -> None:
    """Record an export of the audit log. Call it before the file begins."""
    audit_record(action="audit.export", on=Subject(), after={"format": format_name, "filters": dict(filters)})
