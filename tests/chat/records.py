"""Terminal records for tests, and authentication without a loop."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from asgiref.sync import async_to_sync

from chat.access.keys import Caller
from chat.access.keys import key_authenticate as key_authenticate_async
from chat.models import ModelPrice, ServedModel
from chat.relay.state.keys import run_id_create
from chat.usage.services import TerminalRecord

NOON = 1_767_268_800.0
"""2026-01-01 12:00:00 UTC."""


def key_authenticate(**sent: str) -> Caller:
    return async_to_sync(key_authenticate_async)(**sent)


def record(*, at_s: float = NOON, **fields: Any) -> dict[str, Any]:
    """A finished run that arrived at `at_s`, with its first token 120 ms and its end one second later."""
    values: dict[str, Any] = {
        "run_id": run_id_create(at_s=at_s),
        "arrived_at": at_s,
        "started_at": at_s + 0.02,
        "first_token_at": at_s + 0.12,
        "ended_at": at_s + 1.0,
        "status": 200,
        "outcome": "finished",
        "org_id": 1,
        "project_id": 1,
        "key_public_id": "accept0001",
        "model": "small",
        "model_asked": "small",
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 7,
        "attempts": 1,
    }
    return asdict(TerminalRecord(**(values | fields)))


def price_from(unix_s: float, *, name: str = "small", **amounts: Decimal) -> ModelPrice:
    """Make a price of a model that starts then, be it in the past."""
    model, _ = ServedModel.objects.get_or_create(name=name, defaults={"path": f"/models/{name}.gguf"})
    start = datetime.fromtimestamp(unix_s, UTC)
    return ModelPrice.objects.create(model=model, model_name=name, starts_at=start, **amounts)
