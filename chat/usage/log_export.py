"""Requests as rows of files, and the audit of exports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from django.db import transaction

from chat.access.models import Org
from chat.access.policy import standing_of
from chat.access.roles import Act, Reach
from chat.audit.services import Subject, audit_record
from chat.usage.models import RequestLog

COLUMNS = (
    *("run_id", "arrived_at", "org_id", "project_id", "key_public_id", "account_id", "dialect", "route", "is_stream"),
    *("model_asked", "model", "status", "outcome", "finish_reason", "error_code", "prompt_tokens", "cached_tokens"),
    *("completion_tokens", "reasoning_tokens", "queue_ms", "ttft_ms", "duration_ms", "cost_nanos", "attempts"),
    *("worker", "limit_hit", "media"),
    *("client_request_id", "user_label", "user_agent", "address", "metadata", "batch_id", "retry_count", "patience_s"),
)


def log_values(log: RequestLog) -> dict[str, Any]:
    """Return the columns of a request by name; its time in UTC, its cost in billionths."""
    values = {name: getattr(log, name) for name in COLUMNS}
    values |= {
        "reasoning_tokens": log.reasoning_tokens or 0,
        "limit_hit": log.limit_hit or "",
        "media": log.media or {},
    }
    return values | {"run_id": log.run_id.hex, "arrived_at": log.arrived_at.astimezone(UTC).isoformat()}


@transaction.atomic
def export_record(*, user: Any, act: Act, action: str, format_name: str, filters: Mapping[str, Any]) -> None:
    """Record an export of what an act shows in the audit of each organisation reached, before the file begins."""
    standing = standing_of(user)
    every = Org.objects.values_list("pk", flat=True) if standing.owns_installation else standing.roles
    places = [org_id for org_id in sorted(every) if standing.reach(act, org_id=org_id) > Reach.NONE]
    for org_id in places or [0]:
        audit_record(action=action, on=Subject(org_id=org_id), after={"format": format_name, "filters": dict(filters)})
