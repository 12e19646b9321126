"""The fields of limits on the pages of organisations, projects, members, keys and models."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from chat.access.limit_columns import LIMIT_COLUMNS, RATE_COLUMNS
from chat.access.models import ApiKey
from chat.console.figures import number

LIMIT_HELP: dict[str, str | Promise] = {
    "requests_per_minute": _("Empty: unlimited."),
    "requests_per_day": _("Given back steadily over 24 hours. Empty: unlimited."),
    "tokens_per_minute": _("Prompt and completion tokens together. Empty: unlimited."),
    "input_tokens_per_minute": _("Prompt tokens. Empty: unlimited."),
    "output_tokens_per_minute": _("Completion tokens. Empty: unlimited."),
    "tokens_per_day": _("Prompt and completion tokens, given back steadily over 24 hours. Empty: unlimited."),
    "max_concurrency": _("Requests that run or wait. Empty: unlimited."),
    "max_queue_percent": _("How much of a model's places and queue its requests may take. Empty: all."),
    "max_context": _("The most tokens of a prompt and its answer. Empty: what the model takes."),
}
KEY_CONCURRENCY_HELP = _("Requests that run or wait. Empty, or more than it: %(most)s, the limit of the installation.")
LIMITS = (_("Limits"), {"fields": LIMIT_COLUMNS})
RATE_LIMITS = (_("Limits"), {"fields": RATE_COLUMNS})
TOO_MUCH = _("%(name)s: the project allows at most %(most)s; give this or less, or raise the project's limit first.")


class LimitFields(forms.ModelForm):
    """A form with fields of limits. Its page shows them only to who may not change them: the form then lacks them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in LIMIT_COLUMNS:
            if name in self.fields:
                self.fields[name].help_text = LIMIT_HELP[name]
        if "max_concurrency" in self.fields and self._meta.model is ApiKey:
            most = settings.LIGHTCONE_MAX_LIVE_PER_KEY
            self.fields["max_concurrency"].help_text = KEY_CONCURRENCY_HELP % {"most": number(most)}


def limits_within(form: forms.ModelForm, project: Any, cleaned: dict[str, Any]) -> None:
    """Add an error for each limit that is above the project's. An empty one is bounded by the project's anyway."""
    for name in LIMIT_COLUMNS:
        most, chosen = getattr(project, name), cleaned.get(name)
        if name in form.fields and most and chosen and chosen > most:
            form.add_error(name, TOO_MUCH % {"name": form.fields[name].label, "most": number(most)})


def limits_in_force(key: Any) -> list[tuple[str, int, str]]:
    """Return each limit that holds for a key's requests: its name, the tightest figure, and whose it is."""
    project = key.project
    rows = [(key, _("this key")), (project, _("the project")), (project.org, _("the organisation"))]
    if key.owner_id is not None:
        member = project.org.memberships.filter(user=key.owner_id).first()
        if member is not None:
            rows.insert(1, (member, _("its owner's account")))
    found = []
    for name in LIMIT_COLUMNS:
        figures = [(getattr(row, name), str(whose)) for row, whose in rows if getattr(row, name)]
        if name == "max_concurrency":
            figures.append((settings.LIGHTCONE_MAX_LIVE_PER_KEY, str(_("the installation"))))
        if figures:
            figure, whose = min(figures, key=lambda one: one[0])
            found.append((str(key._meta.get_field(name).verbose_name), figure, whose))
    return found
