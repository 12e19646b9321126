"""Whether a model fits the memory of this machine, read before it is loaded: its weights, cache and steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import gettext as _

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
