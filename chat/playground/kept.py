"""What the server keeps for the page beside conversations: its state, and presets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from chat.access.keys import Caller
from chat.conversations.space import Conflict, space_lock
from chat.errors import ApiError
from chat.playground.models import PageState, Preset

MAX_STATE_BYTES = 64 * 1024
MAX_PRESETS = 200
"""Of a user."""


def state_get(*, user_id: int) -> dict[str, Any]:
    """Return the state of a user's page, empty if none was kept."""
    state: dict[str, Any] = orjson.loads(
        PageState.objects.filter(user_id=user_id).values_list("text", flat=True).first() or "{}"
    )
    return state


def state_change(*, user_id: int, changes: Mapping[str, Any]) -> datetime:
    """Change these names of the state of a user's page, and return when. Raises ApiError beyond MAX_STATE_BYTES.

    All other names stay as they are, so that two devices that change different ones do not undo each other's.
    """
    with transaction.atomic():
        space_lock(user_id)
        text = orjson.dumps({**state_get(user_id=user_id), **changes})
        if len(text) > MAX_STATE_BYTES:
            message = f"What the page keeps may take {MAX_STATE_BYTES} bytes, got {len(text)}; remove some of it."
            raise ApiError("request_too_large", message, limit=MAX_STATE_BYTES, value=len(text))
        now: datetime = timezone.now()
        fields = {"text": text.decode(), "saved_at": now}
        PageState.objects.update_or_create(user_id=user_id, defaults=fields)
    return now


def presets_list(*, user_id: int, caller: Caller) -> list[Preset]:
    """Return a user's own presets and those that others share in the project, by name."""
    seen = Q(owner_id=user_id) | Q(is_shared=True, project_id=caller.project_id)
    return list(Preset.objects.filter(seen).select_related("owner").order_by("name", "id"))


def preset_create(*, user_id: int, caller: Caller, fields: Mapping[str, Any]) -> Preset:
    """Keep parameters under a name. Raises ApiError beyond MAX_PRESETS, and Conflict if the user has that name."""
    with transaction.atomic():
        space_lock(user_id)
        if Preset.objects.filter(owner_id=user_id).count() >= MAX_PRESETS:
            message = f"You have {MAX_PRESETS} presets, as many as anybody may; delete some."
            raise ApiError("insufficient_quota", message, limit=MAX_PRESETS)
        return _save(Preset(owner_id=user_id, project_id=caller.project_id, parameters="{}"), fields)


def preset_change(*, user_id: int, preset_id: int, fields: Mapping[str, Any]) -> Preset:
    """Change the fields of a user's own preset that are there. Raises ApiError, Conflict if the name is taken."""
    with transaction.atomic():
        space_lock(user_id)
        return _save(_own(user_id, preset_id), fields)


def preset_delete(*, user_id: int, preset_id: int) -> None:
    """Delete a user's own preset. Raises ApiError."""
    _own(user_id, preset_id).delete()


def _own(user_id: int, preset_id: int) -> Preset:
    found: Preset | None = Preset.objects.filter(owner_id=user_id, pk=preset_id).first()
    if found is None:
        raise ApiError("not_found", "You have no preset of this id.", "preset")
    return found


def _save(preset: Preset, fields: Mapping[str, Any]) -> Preset:
    if fields["name"] is not None:
        preset.name = " ".join(fields["name"].split())
    if fields["parameters"] is not None:
        preset.parameters = orjson.dumps(fields["parameters"]).decode()
    if fields["is_shared"] is not None:
        preset.is_shared = fields["is_shared"]
    if Preset.objects.filter(owner_id=preset.owner_id, name=preset.name).exclude(pk=preset.pk).exists():
        raise Conflict("You have another preset of this name; choose another name.", "name")
    preset.save()
    return preset
