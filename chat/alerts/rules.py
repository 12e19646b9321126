"""Rules: those that there are, with defaults for new conditions, and their change."""

from __future__ import annotations

import math

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from chat.alerts.models import KINDS, MAX_SECONDS, AlertRule, Condition
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.console.figures import number, short_number

AUDITED = ("is_on", "threshold", "window_s", "least_requests", "hold_s", "cooldown_s")
LEAST_WINDOW_S = 30
MOST_WINDOW_S = 3600
MOST_REQUESTS = 5000


def rules_read() -> dict[str, AlertRule]:
    """Return the rule of each condition. Those that are missing are made with their defaults."""
    rules = {rule.condition: rule for rule in AlertRule.objects.all()}
    if missing := [condition for condition in Condition if condition not in rules]:
        AlertRule.objects.bulk_create([_default(condition) for condition in missing], ignore_conflicts=True)
        rules = {rule.condition: rule for rule in AlertRule.objects.all()}
    return {condition: rules[condition] for condition in Condition}


def _default(condition: Condition) -> AlertRule:
    kind = KINDS[condition]
    return AlertRule(
        condition=condition,
        threshold=kind.threshold,
        window_s=kind.window_s,
        least_requests=kind.least_requests,
        hold_s=kind.hold_s,
        cooldown_s=kind.cooldown_s,
    )


def rule_save(*, rule: AlertRule) -> None:
    """Store a changed rule. It is read at the next look, within seconds. Raises ValidationError."""
    rule_check(rule=rule)
    with transaction.atomic():
        before = row_values(AlertRule.objects.select_for_update().get(pk=rule.pk), AUDITED)
        rule.save()
        audit_record(
            action="rule.change",
            on=Subject(rule.pk, rule.condition),
            before=before,
            after=row_values(rule, AUDITED),
        )


def rule_check(*, rule: AlertRule) -> None:
    """Raise ValidationError for values that the condition of a rule cannot have."""
    kind = KINDS[rule.condition]
    if kind.unit:
        value = rule.threshold
        if value is None or not math.isfinite(value) or not kind.least <= value <= kind.most:
            words = {"least": short_number(kind.least), "most": short_number(kind.most), "unit": kind.unit}
            raise ValidationError({"threshold": _("Give from %(least)s to %(most)s %(unit)s.") % words})
    else:
        rule.threshold = None
    bounds = {"hold_s": (0, MAX_SECONDS), "cooldown_s": (0, MAX_SECONDS)}
    if kind.window_s is not None:
        bounds |= {"window_s": (LEAST_WINDOW_S, MOST_WINDOW_S), "least_requests": (1, MOST_REQUESTS)}
    for name, (least, most) in bounds.items():
        given = getattr(rule, name)
        if given is None or not least <= given <= most:
            text = _("Give from %(least)s to %(most)s.") % {"least": number(least), "most": number(most)}
            raise ValidationError({name: text})
