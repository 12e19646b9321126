"""Requests as rows of files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from chat.access.policy import standing_of
from chat.audit.services import Subject, audit_record
from chat.usage.models import RequestLog

COLUMNS = (
    *("run_id", "arrived_at", "org_id", "project_id", "key_public_id", "account_id", "dialect", "route", "is_stream"),
    *("model_asked", "model", "status", "outcome", "finish_reason", "error_code", "prompt_tokens", "cached_tokens"),
    *("completion_tokens", "reasoning_tokens", "queue_ms", "ttft_ms", "duration_ms", "cost_nanos", "attempts"),
    *("worker", "limit_hit"),
    *("client_request_id", "user_label", "user_agent", "address", "metadata", "batch_id", "retry_count", "patience_s"),
)


def log_values(log: RequestLog) -> dict[str, Any]:
    """Return the columns of a request by name; its time in UTC, its cost in billionths."""
    values = {name: getattr(log, name) for name in COLUMNS}
    values |= {"reasoning_tokens": log.reasoning_tokens or 0, "limit_hit": log.limit_hit or ""}
    return values | {"run_id": log.run_id.hex, "arrived_at": log.arrived_at.astimezone(UTC).isoformat()}


def logs_export_record(*, user: Any, format_name: str, filters: Mapping[str, Any]) -> None:
    """Record an export of the request log. Call it before the file begins.

    The entry belongs to the organisation, if the user has a role in one alone.
    """
    roles = standing_of(user).roles
    org_id = next(iter(roles)) if len(roles) == 1 else 0
    audit_record(
        action="requests.export", on=Subject(org_id=org_id), after={"format": format_name, "filters": dict(filters)}
    )
