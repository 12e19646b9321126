"""States on console pages: coloured by their values in every language, and named alone on the page of a row."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.utils import translation
from django.utils.html import conditional_escape
from unfold.utils import display_for_label

from chat.batches.models import Batch, BatchStatus
from chat.catalog.models import ModelState, ServedModel
from chat.model_jobs.models import JobState, ModelJob
from chat.usage.models import RequestLog
from engine.api import Outcome

OUTCOMES = [(outcome.value, outcome.value.replace("_", " ")) for outcome in Outcome]
PAGES = (
    (ServedModel, "state", "show_state", ModelState.choices),
    (ModelJob, "state", "show_state", JobState.choices),
    (Batch, "status", "show_status", BatchStatus.choices),
    (RequestLog, "outcome", "show_outcome", OUTCOMES),
)


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(("model", "field", "shown", "states"), PAGES)
def test_states_are_coloured_by_their_values(language: str, model: Any, field: str, shown: str, states: Any) -> None:
    show = getattr(admin.site.get_model_admin(model), shown)
    for value, name in states:
        with translation.override(language):
            found = show(model(**{field: value}))
            assert value in show.label
            assert str(found.name) in display_for_label(found, "-", show.label)
            assert conditional_escape(found) == str(found.name)
        assert str(found.name) == name


def test_names_are_escaped() -> None:
    show = admin.site.get_model_admin(RequestLog).show_outcome
    assert conditional_escape(show(RequestLog(outcome="<b>"))) == "&lt;b&gt;"
