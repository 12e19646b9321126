"""The page that says whether a model fits, before it is loaded: its weights, cache and steps against the memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chat.access.policy import may
from chat.access.roles import Act
from chat.catalog.model_choice import NoModel
from chat.catalog.models import ServedModel
from chat.catalog.services import models_offered
from chat.workers.engine_start import engine_config, need_of
from chat.workers.memory import UNLIMITED, memory_budget
from chat.workers.offers import offers_of
from engine.api import MemoryNeed
from engine.api.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model needs of this machine's budget. `problem`: why it cannot be said, or why it does not fit."""

    need: MemoryNeed | None
    budget_bytes: int
    problem: str = ""


def model_fit(*, model: ServedModel) -> Fit:
    """Read what a model needs from the headers of its files, in a process of its own. It takes a few seconds."""
    budget = memory_budget(settings.LIGHTCONE_MODEL_MEMORY_BYTES, settings.LIGHTCONE_DEVICE)
    known = 0 if budget >= UNLIMITED else budget
    try:
        first = engine_config()
    except NoModel as error:
        return Fit(None, known, str(error))
    offers = offers_of(models_offered(), dataclasses.replace(first), hosted=[], idle_s=0)
    config = next((offer.config for offer in offers if offer.name == model.name), None)
    if config is None:
        return Fit(None, known, _("Its files are not on this machine, or it is disabled."))
    try:
        need = need_of(config, budget)
    except ModelLoadError as error:
        return Fit(None, known, error.message)
    return Fit(need, known, need.refusal(budget))


@never_cache
@require_safe
def fit(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the sum of what a model needs. Raises PermissionDenied and Http404."""
    if not may(request.user, Act.MODELS_MANAGE):
        raise PermissionDenied
    model = get_object_or_404(ServedModel, pk=pk)
    context = {"title": _("Does %(name)s fit?") % {"name": model.name}, "model": model, "fit": model_fit(model=model)}
    return TemplateResponse(request, "admin/live/fit.html", admin.site.each_context(request) | context)


admin.site.pages.append(path("models/<int:pk>/fit/", admin.site.admin_view(fit), name="model_fit"))
