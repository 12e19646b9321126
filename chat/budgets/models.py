"""The tables of budgets. Only `services.py` writes them; what is spent is written with the rows of requests."""

from __future__ import annotations

from decimal import Decimal
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat.access.models import ApiKey, Membership, Org, Project
from chat.budgets.windows import WindowKind
from chat.catalog.models import ServedModel

MAX_AMOUNT = 9_000_000_000_000
"""Tokens, or millionths of the currency: sums in billionths stay whole numbers in a script."""
NANOS_PER_MICRO = 1000


def money_text(nanos: int) -> str:
    """Return an amount of the currency with two to six digits, and none of them beyond two a zero at the end."""
    whole, _point, digits = f"{Decimal(nanos) / (NANOS_PER_MICRO * 1_000_000):,.6f}".partition(".")
    return f"{whole}.{digits.rstrip('0'):0<2} {settings.LIGHTCONE_CURRENCY}"


class BudgetScope(models.TextChoices):
    """What a budget is on. The values are those of chat.relay.state.meters.ScopeKind."""

    ORG = "org", _("Organisation")
    PROJECT = "project", _("Project")
    ACCOUNT = "account", _("Account")
    KEY = "key", _("API key")
    MODEL = "model", _("Model")


class Unit(models.TextChoices):
    TOKENS = "tokens", _("Tokens")
    MONEY = "money", _("Money")


WEEKDAYS = ((0, _("Monday")), (5, _("Saturday")), (6, _("Sunday")))


def check_zone(name: str) -> None:
    """Raise ValidationError unless `name` is a zone of the IANA database."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValidationError(
            _("%(name)s is no time zone; write one such as Europe/Berlin or UTC.") % {"name": repr(name)}
        ) from None


class Budget(models.Model):
    """An amount for each window of time. Exactly the reference that its scope names is set."""

    name = models.CharField(_("name"), max_length=120)
    scope = models.CharField(_("scope"), max_length=10, choices=BudgetScope.choices, default=BudgetScope.PROJECT)
    org = models.ForeignKey(
        Org, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets", verbose_name=_("organisation")
    )
    """Where it belongs; None of one on a model."""
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets")
    member = models.ForeignKey(
        Membership, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets", verbose_name=_("account")
    )
    key = models.ForeignKey(
        ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets", verbose_name=_("API key")
    )
    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets")
    unit = models.CharField(_("unit"), max_length=8, choices=Unit.choices, default=Unit.TOKENS)
    amount = models.BigIntegerField(_("amount"), validators=[MinValueValidator(1), MaxValueValidator(MAX_AMOUNT)])
    """Tokens, or millionths of LIGHTCONE_CURRENCY."""
    window = models.CharField(_("window"), max_length=10, choices=WindowKind.choices, default=WindowKind.MONTH)
    time_zone = models.CharField(_("time zone"), max_length=64, default="UTC", validators=[check_zone])
    week_start = models.PositiveSmallIntegerField(_("week begins on"), choices=WEEKDAYS, default=0)
    is_hard = models.BooleanField(_("hard"), default=False)
    """Whether requests are refused once it is spent."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = _("budget")
        verbose_name_plural = _("budgets")

    def __str__(self) -> str:
        return self.name


class BudgetSpend(models.Model):
    """What is spent of a budget in one window. This is the truth; the counters in Valkey are rebuilt from it."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="spends")
    window = models.CharField(max_length=20)
    """The id of the window (chat.budgets.windows)."""
    spent = models.BigIntegerField(default=0)
    """Tokens, or billionths of LIGHTCONE_CURRENCY, as in the log of requests."""
    level = models.PositiveSmallIntegerField(default=0)
    """The highest of 50, 80 and 100 % that it has reached."""
    level_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("budget", "window"), name="one_spend_in_window"),)

    def __str__(self) -> str:
        return f"{self.budget_id} {self.window}"
