"""The page's routes beside conversations: what it keeps, the models, the form, constraints and prompts to be sent."""

from __future__ import annotations

from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.http import HttpRequest, HttpResponse

from chat.access.authentication import configuration_refresh
from chat.access.policy import may
from chat.access.roles import Act
from chat.api.request.strict_json import json_object_read
from chat.api.view import json_response, run_in_thread_if_large
from chat.conversations.frame import Visit, page_view, page_view_async
from chat.conversations.schema import fields_read, page_body, page_body_read, page_bounds, page_object_read
from chat.playground import kept
from chat.playground.api_schema import CONSTRAINT_CHECK, MODEL, NEW_PRESET, PRESET_CHANGE
from chat.playground.checks import constraint_check
from chat.playground.form import form
from chat.playground.models import Preset
from chat.playground.offered import model_load, models_offered
from chat.playground.prompts import prompt_render, text_count

# State.


def state(request: HttpRequest, visit: Visit) -> HttpResponse:
    return json_response(kept.state_get(user_id=visit.user_id))


def change_state(request: HttpRequest, visit: Visit) -> HttpResponse:
    saved_at = kept.state_change(user_id=visit.user_id, changes=page_object_read(request, kept.MAX_STATE_BYTES))
    return json_response({"saved_at": saved_at.timestamp()})


# Presets.


def presets(request: HttpRequest, visit: Visit) -> HttpResponse:
    found = kept.presets_list(user_id=visit.user_id, caller=visit.caller)
    return json_response({"data": [preset_object(preset, visit) for preset in found]})


def create_preset(request: HttpRequest, visit: Visit) -> HttpResponse:
    fields = page_body_read(request, NEW_PRESET)
    made = kept.preset_create(user_id=visit.user_id, caller=visit.caller, fields=fields)
    return json_response(preset_object(made, visit))


def change_preset(request: HttpRequest, visit: Visit, preset_id: str) -> HttpResponse:
    fields = page_body_read(request, PRESET_CHANGE)
    changed = kept.preset_change(user_id=visit.user_id, preset_id=int(preset_id), fields=fields)
    return json_response(preset_object(changed, visit))


def delete_preset(request: HttpRequest, visit: Visit, preset_id: str) -> HttpResponse:
    kept.preset_delete(user_id=visit.user_id, preset_id=int(preset_id))
    return json_response({"num_deleted": 1})


def preset_object(preset: Preset, visit: Visit) -> dict[str, Any]:
    return {
        "id": preset.pk,
        "name": preset.name,
        "parameters": orjson.Fragment(preset.parameters),
        "is_shared": preset.is_shared,
        "is_own": preset.owner_id == visit.user_id,
        "owner": preset.owner.get_username(),
    }


# Models.


async def models(request: HttpRequest, visit: Visit) -> HttpResponse:
    await configuration_refresh()
    user = await request.auser()
    sees_reasons = await database_sync_to_async(may)(user, Act.MODELS_SEE)
    return json_response({"data": await models_offered(caller=visit.caller, sees_reasons=sees_reasons)})


async def load(request: HttpRequest, visit: Visit) -> HttpResponse:
    await configuration_refresh()
    name = page_body_read(request, MODEL)["model"]
    condition = await model_load(name=name, caller=visit.caller)
    now = {"state": condition.state, "phase": condition.phase, "fraction": condition.fraction}
    return json_response({"model": name, **now})


def fields(request: HttpRequest, visit: Visit) -> HttpResponse:
    return json_response(form())


async def render(request: HttpRequest, visit: Visit) -> HttpResponse:
    await configuration_refresh()
    name = (await request.auser()).get_username()
    return json_response(await prompt_render(request, caller=visit.caller, username=name))


async def count(request: HttpRequest, visit: Visit) -> HttpResponse:
    await configuration_refresh()
    name = (await request.auser()).get_username()
    return json_response(await text_count(request, caller=visit.caller, username=name))


async def check(request: HttpRequest, visit: Visit) -> HttpResponse:
    raw = page_body(request)
    fields = fields_read(CONSTRAINT_CHECK, await run_in_thread_if_large(len(raw), json_object_read, raw, page_bounds()))
    answer = await constraint_check(kind=fields["kind"], value=fields["value"], text=fields["text"])
    return json_response(orjson.Fragment(answer))


check_view = page_view_async(post=check)
render_view = page_view_async(post=render)
count_view = page_view_async(post=count)
fields_view = page_view(is_private=True, get=fields)
models_view = page_view_async(get=models)
load_view = page_view_async(post=load)
state_view = page_view(is_private=True, get=state, patch=change_state)
presets_view = page_view(is_private=True, get=presets, post=create_preset)
preset_view = page_view(is_private=True, patch=change_preset, delete=delete_preset)
