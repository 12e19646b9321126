"""The acts of people on models that workers have loaded. Both block; call them from threads.

A request that has its model loaded is no such act.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from chat.audit.services import audit_record
from chat.catalog.models import ServedModel
from chat.catalog.services import model_subject
from chat.relay.model_acts import model_load_ask, model_unload_ask


def model_load(*, name: str) -> None:
    """Ask the workers to load a model. Raises redis.RedisError or OSError."""
    _ask("model.load", name, model_load_ask)


def model_unload(*, name: str) -> None:
    """Ask the workers to unload a model once its runs have ended. Raises any error of the broker's client."""
    _ask("model.unload", name, model_unload_ask)


@transaction.atomic
def _ask(action: str, name: str, ask: Callable[..., None]) -> None:
    """Record an act, then ask for it: where nobody can be asked nothing is recorded."""
    audit_record(action=action, on=model_subject(ServedModel.objects.get(name=name)))
    ask(name=name)
