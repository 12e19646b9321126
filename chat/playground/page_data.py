"""The data in the HTML of the page: its user, the models' defaults, and the fields of a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings

from chat.catalog.services import NEUTRAL, ModelEntry, sampling_defaults_effective
from chat.playground.requests import FIELDS_TAKEN

WITH_A_SLIDER = ("temperature", "top_p")


def page_data(models: Iterable[ModelEntry], *, user_id: int) -> dict[str, Any]:
    """Return the page's data. `user`: whose storage the page may read; `max_bytes`: of one message to the socket."""
    return {
        "user": user_id,
        "models": {model.name: model_defaults(model) for model in models},
        "fields": sorted(FIELDS_TAKEN),
        "max_bytes": settings.LIGHTCONE_HTTP_LIMITS.max_ws_message_bytes,
    }


def model_defaults(model: ModelEntry) -> dict[str, Any]:
    """Return the model's defaults that are not neutral, and those that the panel always shows."""
    effective = sampling_defaults_effective(model.sampling_defaults)
    return {name: value for name, value in effective.items() if name in WITH_A_SLIDER or value != NEUTRAL[name]}
