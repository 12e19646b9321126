"""The tables of alerts: rules, episodes, channels and deliveries. Only the services of this room write them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.core.validators import MaxValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat.access.models import Org

MAX_ADDRESS_CHARS = 500
ANSWER_CHARS = 300
MAX_SECONDS = 7 * 24 * 3600


def choices_of(labels: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(str(value), label) for value, label in labels.items()]


class Condition(StrEnum):
    """What is watched. A rule of each is a row."""

    BUDGET_50 = "budget_50"
    BUDGET_80 = "budget_80"
    BUDGET_100 = "budget_100"
    WORKER_LOST = "worker_lost"
    MODEL_FAILED = "model_failed"
    ERROR_RATE = "error_rate"
    QUEUE_AGE = "queue_age"
    USAGE_BEHIND = "usage_behind"
    DISK_LOW = "disk_low"


CONDITIONS: Mapping[str, Any] = {
    Condition.BUDGET_50: _("Budget half spent"),
    Condition.BUDGET_80: _("Budget spent to 80 %"),
    Condition.BUDGET_100: _("Budget used up"),
    Condition.WORKER_LOST: _("Worker lost"),
    Condition.MODEL_FAILED: _("Model failed to load"),
    Condition.ERROR_RATE: _("Errors of the server"),
    Condition.QUEUE_AGE: _("Requests wait too long"),
    Condition.USAGE_BEHIND: _("Usage writer behind"),
    Condition.DISK_LOW: _("Disk low"),
}


BUDGET_PERCENTS: Mapping[str, int] = {
    Condition.BUDGET_50: 50,
    Condition.BUDGET_80: 80,
    Condition.BUDGET_100: 100,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What the rule of a condition asks for, and what it begins with. No threshold: `unit` is empty."""

    unit: Any = ""
    threshold: float | None = None
    least: float = 0
    most: float = 0
    hold_s: int = 0
    cooldown_s: int = 900
    window_s: int | None = None
    least_requests: int | None = None


KINDS: Mapping[str, Kind] = {
    Condition.BUDGET_50: Kind(cooldown_s=0),
    Condition.BUDGET_80: Kind(cooldown_s=0),
    Condition.BUDGET_100: Kind(cooldown_s=0),
    Condition.WORKER_LOST: Kind(_("seconds without a report"), 20, least=5, most=50),
    Condition.MODEL_FAILED: Kind(),
    Condition.ERROR_RATE: Kind(
        _("percent of the requests"), 5, least=0.1, most=100, hold_s=30, window_s=300, least_requests=20
    ),
    Condition.QUEUE_AGE: Kind(_("seconds"), 60, least=1, most=86400, hold_s=10),
    Condition.USAGE_BEHIND: Kind(_("seconds"), 60, least=1, most=86400, hold_s=10),
    Condition.DISK_LOW: Kind(_("GiB free"), 1, least=0.01, most=100_000, hold_s=30),
}


class AlertRule(models.Model):
    """How a condition is judged. There is one of each; `rules.py` makes those that are missing."""

    condition = models.CharField(
        _("condition"), max_length=20, choices=choices_of(CONDITIONS), unique=True, editable=False
    )
    is_on = models.BooleanField(_("on"), default=True)
    threshold = models.FloatField(_("threshold"), null=True, blank=True)
    """In the unit of the condition; None where it has none."""
    window_s = models.PositiveIntegerField(_("window (s)"), null=True, blank=True)
    """Over which a rate is computed."""
    least_requests = models.PositiveIntegerField(_("least number of requests"), null=True, blank=True)
    """In the window; a rate of fewer is not judged."""
    hold_s = models.PositiveIntegerField(_("must hold for (s)"), default=0, validators=[MaxValueValidator(MAX_SECONDS)])
    cooldown_s = models.PositiveIntegerField(_("cool-down (s)"), default=0, validators=[MaxValueValidator(MAX_SECONDS)])
    """The least time between two notices that the same thing is wrong."""

    class Meta:
        ordering = ("id",)
        verbose_name = _("alert rule")
        verbose_name_plural = _("alert rules")

    def __str__(self) -> str:
        return str(self.get_condition_display())


class Alert(models.Model):
    """An episode: the time from when a condition begins to hold of a subject until it does not."""

    condition = models.CharField(_("condition"), max_length=20, choices=choices_of(CONDITIONS))
    subject = models.CharField(max_length=300)
    """What it is about, such as `budget:5` or `worker:model@here`."""
    name = models.CharField(_("name"), max_length=300)
    """Of the subject, as people know it."""
    org = models.ForeignKey(
        Org, on_delete=models.CASCADE, null=True, blank=True, related_name="+", verbose_name=_("organisation")
    )
    """None: of the installation."""
    value = models.FloatField(null=True)
    """What was measured last, in the unit of the threshold; of budgets, percent."""
    threshold = models.FloatField(null=True)
    detail = models.CharField(max_length=300, default="", blank=True)
    """A reason, as the part that failed has given it."""
    since = models.DateTimeField(_("since"))
    fired_at = models.DateTimeField(_("fired"), null=True)
    """When it had held long enough; None until then."""
    notified_at = models.DateTimeField(_("notice"), null=True)
    """When the notice was given; None until the cool-down of the one before is over."""
    seen_at = models.DateTimeField()
    """When the condition was last seen to hold."""
    ended_at = models.DateTimeField(_("ended"), null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        constraints = (
            models.UniqueConstraint(
                fields=("condition", "subject"), condition=models.Q(ended_at=None), name="one_open_alert"
            ),
        )
        indexes = (
            models.Index(fields=("condition", "subject", "-notified_at"), name="alert_notified"),
            models.Index(fields=("ended_at", "-id"), name="alert_ended"),
            models.Index(fields=("condition", "-id"), name="alert_condition"),
            models.Index(fields=("org", "-id"), name="alert_org"),
        )

    def __str__(self) -> str:
        return f"{self.get_condition_display()}: {self.name}"

    @property
    def is_open(self) -> bool:
        return self.ended_at is None and self.fired_at is not None


class ChannelKind(StrEnum):
    WEBHOOK = "webhook"
    EMAIL = "email"


CHANNEL_KINDS: Mapping[str, Any] = {
    ChannelKind.WEBHOOK: _("Webhook"),
    ChannelKind.EMAIL: _("E-mail"),
}


class AlertChannel(models.Model):
    """Where notices go: those of the installation, or those of an organisation's budgets."""

    name = models.CharField(_("name"), max_length=120)
    org = models.ForeignKey(
        Org,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="alert_channels",
        verbose_name=_("organisation"),
    )
    """Whose budgets it tells of. None: the installation."""
    kind = models.CharField(
        _("kind"), max_length=8, choices=choices_of(CHANNEL_KINDS), default=ChannelKind.WEBHOOK.value
    )
    address = models.CharField(_("address"), max_length=MAX_ADDRESS_CHARS)
    """A URL or an e-mail address. URLs of webhooks may be secrets themselves, so lists show their hosts alone."""
    is_on = models.BooleanField(_("on"), default=True)
    conditions = models.JSONField(_("conditions"), default=list, blank=True)
    """Those that it tells of. Empty: all."""
    sealed_secret = models.TextField(default="", editable=False)
    """What webhooks are signed with, encrypted (secrets.py)."""
    sealed_old_secret = models.TextField(default="", editable=False)
    old_secret_until = models.DateTimeField(null=True, editable=False)
    """Until when webhooks are signed with the secret before, too."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = _("alert channel")
        verbose_name_plural = _("alert channels")
        constraints = (
            models.UniqueConstraint(fields=("org", "name"), name="alert_channel_name_in_org"),
            models.UniqueConstraint(fields=("name",), condition=models.Q(org=None), name="alert_channel_name"),
        )

    def __str__(self) -> str:
        return self.name


class Event(StrEnum):
    """What a notice says. The values are the types of the events of webhooks, after `alert.`."""

    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


EVENTS: Mapping[str, Any] = {
    Event.FIRING: _("Firing"),
    Event.RESOLVED: _("Resolved"),
    Event.TEST: _("Test"),
}


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


STATES: Mapping[str, Any] = {
    DeliveryState.WAITING: _("Waiting"),
    DeliveryState.DELIVERED: _("Delivered"),
    DeliveryState.FAILED: _("Failed"),
}


class AlertDelivery(models.Model):
    """A notice on its way to one channel. Its content is fixed, so that each try sends the same."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    """The id of the message, by which receivers know a second copy."""
    channel = models.ForeignKey(
        AlertChannel,
        on_delete=models.SET_NULL,
        null=True,
        related_name="deliveries",
        verbose_name=_("channel"),
        db_index=False,
    )
    channel_name = models.CharField(_("channel"), max_length=120)
    org = models.ForeignKey(
        Org, on_delete=models.CASCADE, null=True, blank=True, related_name="+", verbose_name=_("organisation")
    )
    event = models.CharField(_("event"), max_length=8, choices=choices_of(EVENTS))
    condition = models.CharField(_("condition"), max_length=20, choices=choices_of(CONDITIONS), default="", blank=True)
    title = models.CharField(_("title"), max_length=400)
    text = models.TextField(_("text"))
    body = models.TextField(_("body"))
    """JSON, as webhooks get it."""
    state = models.CharField(_("state"), max_length=10, choices=choices_of(STATES), default=DeliveryState.WAITING.value)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    next_at = models.DateTimeField(_("next try"), default=timezone.now)
    """When it is tried next; during a try, when the try counts as lost."""
    status = models.PositiveSmallIntegerField(_("status"), null=True)
    """Of the receiver's last answer."""
    answer = models.CharField(_("answer"), max_length=ANSWER_CHARS, default="", blank=True)
    """How its body began."""
    error = models.CharField(_("error"), max_length=300, default="", blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name = _("alert delivery")
        verbose_name_plural = _("alert deliveries")
        indexes = (
            models.Index(fields=("next_at",), condition=models.Q(state="waiting"), name="delivery_due"),
            models.Index(fields=("state", "-id"), name="delivery_state"),
            models.Index(fields=("channel", "-id"), name="delivery_channel"),
            models.Index(fields=("org", "-id"), name="delivery_org"),
            models.Index(fields=("created_at",), name="delivery_created"),
        )

    def __str__(self) -> str:
        return self.title
