"""The table of served models."""

from __future__ import annotations

from typing import Any

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat.access.checks import check_object, check_texts
from chat.access.limit_columns import RateColumns


class ModelState(models.TextChoices):
    UNLOADED = "unloaded", _("Unloaded")
    LOADING = "loading", _("Loading")
    READY = "ready", _("Ready")
    DRAINING = "draining", _("Draining")
    FAILED = "failed", _("Failed")


COMPUTED_BY_CHARS = 1000


def price_field(label: Any, *, is_optional: bool = False) -> models.DecimalField:
    """Return a field for the price of a million tokens."""
    return models.DecimalField(
        label,
        max_digits=14,
        decimal_places=6,
        null=is_optional,
        blank=is_optional,
        validators=[MinValueValidator(0)],
    )


class ServedModel(RateColumns):
    name = models.CharField(max_length=200, unique=True)
    """Its queue is named after it (`chat.relay.state.keys.model_slug`)."""
    aliases = models.JSONField(default=list, blank=True, validators=[check_texts])
    """Further names that clients may ask for."""
    fallback = models.CharField(max_length=200, default="", blank=True)
    """The model that answers in its place while it has no worker or its queue is full."""
    transcriber = models.CharField(max_length=200, default="", blank=True)
    """The model that writes down sound in its messages; without one they have none."""
    deprecated_at = models.DateTimeField("deprecated from", null=True, blank=True)
    """Answers say it in a header, also before."""
    chat_template = models.TextField(default="", blank=True)
    """In place of the template in its files."""
    path = models.CharField(max_length=1024)
    owned_by = models.CharField(max_length=100, default="lightcone")
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField("default", default=False)
    pinned = models.BooleanField(default=False)
    """Its worker loads it at once and keeps it."""
    idle_s = models.PositiveIntegerField(null=True, blank=True)
    """Seconds without a request after which its worker unloads it; 0: never; empty: LIGHTCONE_MODEL_IDLE."""
    max_model_len = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    """The context to serve, in tokens; empty: what the model was made for, as far as the cache holds it."""
    loaded_context = models.PositiveIntegerField(null=True, blank=True, editable=False)
    """The context that a worker has reported."""
    sampling_defaults = models.JSONField(default=dict, blank=True, validators=[check_object])
    """Request fields such as `temperature`, for requests that leave them out."""
    system_prompt = models.TextField(default="", blank=True)
    """The first message of conversations that begin with no system message."""
    maker_defaults = models.JSONField(default=dict, blank=True, editable=False)
    """Defaults that a worker has read from the model's files; `sampling_defaults` overrides them."""
    modalities = models.JSONField(default=list, blank=True, editable=False)
    """What messages may have beside text, as a worker has read of the model's files."""
    state = models.CharField(max_length=16, choices=ModelState.choices, default=ModelState.UNLOADED, editable=False)
    state_reason = models.CharField(max_length=500, default="", blank=True, editable=False)
    computed_by = models.CharField(max_length=COMPUTED_BY_CHARS, default="", blank=True, editable=False)
    """Which form each part of the model runs in, as a worker has reported it."""
    state_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "model"
        constraints = (
            models.UniqueConstraint(
                fields=("is_default",), condition=models.Q(is_default=True), name="one_default_model"
            ),
        )

    def __str__(self) -> str:
        return self.name


class ModelPrice(models.Model):
    """The price of a model from an instant on, until the next starts. One that has started never changes."""

    model = models.ForeignKey(
        ServedModel, on_delete=models.SET_NULL, null=True, related_name="prices", verbose_name=_("model")
    )
    """None: the model has been deleted."""
    model_name = models.CharField(_("model"), max_length=200, editable=False)
    """As it was called when the price was added."""
    starts_at = models.DateTimeField(_("starts at"))
    input = price_field(_("input"))
    cached = price_field(_("cached input"), is_optional=True)
    """Without it a cached prompt token costs as much as any other."""
    output = price_field(_("output"))
    reasoning = price_field(_("reasoning"), is_optional=True)
    """Without it a token of reasoning costs as much as any other of the output."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = (models.UniqueConstraint(fields=("model", "starts_at"), name="one_price_at_an_instant"),)

    def __str__(self) -> str:
        return f"{self.model_name}, {self.starts_at:%Y-%m-%d %H:%M} UTC"


class ModelAdapter(models.Model):
    """A LoRA adapter of a model. Requests name it as `model:adapter`."""

    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="adapters")
    name = models.CharField(max_length=100)
    path = models.CharField(max_length=1024)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("model__name", "name")
        verbose_name = "adapter"
        constraints = (models.UniqueConstraint(fields=("model", "name"), name="one_adapter_of_a_name"),)

    def __str__(self) -> str:
        return self.full_name

    @property
    def full_name(self) -> str:
        return f"{self.model.name}:{self.name}"


class WeightedAlias(models.Model):
    """A name that leads to one of several models, to each as often as its weight says."""

    name = models.CharField(max_length=200, unique=True)
    targets = models.JSONField(default=list)
    """Objects of `model`, a name of the catalogue, and `weight`, 1 to 1000."""

    class Meta:
        ordering = ("name",)
        verbose_name = "weighted alias"
        verbose_name_plural = "weighted aliases"

    def __str__(self) -> str:
        return self.name
