"""The acts of people on models that workers have loaded. All block; call them from threads.

A request that has its model loaded is no such act.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from chat.audit.services import audit_record
from chat.catalog.models import ServedModel
from chat.catalog.services import model_subject, model_update
from chat.relay.model_acts import model_load_ask, model_restart_ask, model_unload_ask


def model_load(*, name: str) -> None:
    """Ask the workers to load a model. Raises redis.RedisError or OSError."""
    _ask("model.load", name, model_load_ask)


def model_unload(*, name: str) -> None:
    """Ask the workers to unload a model once its runs have ended. Raises any error of the broker's client."""
    _ask("model.unload", name, model_unload_ask)


def model_restart(*, name: str) -> None:
    """Ask the workers to load a model anew once its runs have ended, with what is set now. Raises as `model_unload`."""
    _ask("model.restart", name, model_restart_ask)


def model_pin(*, name: str) -> None:
    """Keep a model loaded. Raises ValidationError."""
    _pinned(name, True)


def model_unpin(*, name: str) -> None:
    """Let a model be unloaded. Raises ValidationError."""
    _pinned(name, False)


@transaction.atomic
def _pinned(name: str, is_pinned: bool) -> None:
    model = ServedModel.objects.select_for_update().get(name=name)
    model.pinned = is_pinned
    model_update(model=model)


@transaction.atomic
def _ask(action: str, name: str, ask: Callable[..., None]) -> None:
    """Record an act, then ask for it: where nobody can be asked nothing is recorded."""
    audit_record(action=action, on=model_subject(ServedModel.objects.get(name=name)))
    ask(name=name)
