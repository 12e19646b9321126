"""The JSON objects of files and batches."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from chat.api.dialect import OpenAIErrorFormat
from chat.batches.models import Batch, ProjectFile


class BatchesFormat(OpenAIErrorFormat):
    name = "batches"


BATCHES = BatchesFormat()


def file_object(file: ProjectFile) -> dict[str, Any]:
    return {
        "id": file.public_id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": _seconds(file.created_at),
        "expires_at": _seconds(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    """Return the JSON object of a batch. It names files once they are complete, and usage once there is some."""
    return {
        "id": batch.public_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": None if batch.is_open else batch.output_file_id or None,
        "error_file_id": None if batch.is_open else batch.error_file_id or None,
        **{name: _seconds(getattr(batch, name)) for name in INSTANTS},
        "request_counts": {"total": batch.num_lines, "completed": batch.num_completed, "failed": batch.num_failed},
        "usage": _usage(batch),
        "metadata": batch.metadata,
    }


INSTANTS = (
    *("created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at"),
    *("cancelling_at", "cancelled_at"),
)


def _usage(batch: Batch) -> dict[str, Any] | None:
    if not batch.prompt_tokens:
        return None
    return {
        "input_tokens": batch.prompt_tokens,
        "input_tokens_details": {"cached_tokens": batch.cached_tokens},
        "output_tokens": batch.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
        "total_tokens": batch.prompt_tokens + batch.completion_tokens,
    }


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
