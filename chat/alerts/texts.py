"""What notices and pages say of an alert, in the language that is active."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from chat.alerts.models import BUDGET_PERCENTS, CONDITIONS, KINDS, Alert, Condition, Event
from chat.console.figures import number, short_number


def alert_title(alert: Alert, event: str) -> str:
    words = {"what": CONDITIONS[alert.condition], "name": alert.name}
    if event == Event.RESOLVED:
        return _("Resolved: %(what)s (%(name)s)") % words
    return _("%(what)s (%(name)s)") % words


def alert_text(alert: Alert) -> str:
    """Return a sentence on what is measured, against what, and what to do."""
    condition = Condition(alert.condition)
    if condition in BUDGET_PERCENTS:
        return _("%(value)s %% of the budget “%(name)s” are spent in this window.") % {
            "value": _number(alert.value),
            "name": alert.name,
        }
    words = {
        "name": alert.name,
        "value": _number(alert.value),
        "threshold": _number(alert.threshold),
        "unit": KINDS[condition].unit,
        "detail": alert.detail,
    }
    return str(_sentence(condition) % words).strip()


def _sentence(condition: Condition) -> Any:
    sentences = {
        Condition.WORKER_LOST: _(
            "The worker %(name)s stopped reporting without having been stopped. Look at its process and its log."
        ),
        Condition.MODEL_FAILED: _("The model %(name)s could not be loaded: %(detail)s"),
        Condition.ERROR_RATE: _(
            "%(value)s %% of the requests ended with an error of the server (limit %(threshold)s %%). %(detail)s"
        ),
        Condition.QUEUE_AGE: _(
            "The oldest request has waited %(value)s s for a worker (limit %(threshold)s s). "
            "Load its model, or start a worker for it."
        ),
        Condition.USAGE_BEHIND: _(
            "The oldest usage record has waited %(value)s s to be written (limit %(threshold)s s). "
            "Look at logs/maintenance.log."
        ),
        Condition.DISK_LOW: _("%(name)s has %(value)s GiB free (limit %(threshold)s GiB). Free some space."),
    }
    return sentences[condition]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return number(value) if value >= 100 else short_number(value, 3)
