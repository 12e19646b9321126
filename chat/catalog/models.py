"""Which models are served, under which names."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from chat.access.checks import check_object, check_texts


class ModelState(models.TextChoices):
    """What the workers last said of a model."""

    UNLOADED = "unloaded", "Unloaded"
    LOADING = "loading", "Loading"
    READY = "ready", "Ready"
    DRAINING = "draining", "Draining"
    FAILED = "failed", "Failed"


def price_field() -> models.DecimalField:
    """What a million tokens cost; empty: nothing."""
    return models.DecimalField(
        max_digits=14, decimal_places=6, null=True, blank=True, validators=[MinValueValidator(0)]
    )


class ServedModel(models.Model):
    """A model by its public name. Its queue is named after it (chat.relay.state.keys.model_slug); `aliases` are further names.

    `sampling_defaults` holds request fields (temperature, top_p, ...) used where a request leaves them out; `maker_defaults` those that the
    model's worker has read from its files, which are weaker. Prices are per million tokens; a cached prompt token costs as much as another
    one where it has no price of its own.
    """

    name = models.CharField(max_length=200, unique=True)
    aliases = models.JSONField(default=list, blank=True, validators=[check_texts])
    path = models.CharField(max_length=1024)
    owned_by = models.CharField(max_length=100, default="lightcone")
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)
    max_model_len = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    sampling_defaults = models.JSONField(default=dict, blank=True, validators=[check_object])
    maker_defaults = models.JSONField(default=dict, blank=True, editable=False)
    input_price = price_field()
    cached_price = price_field()
    output_price = price_field()
    state = models.CharField(max_length=16, choices=ModelState.choices, default=ModelState.UNLOADED, editable=False)
    state_reason = models.CharField(max_length=500, default="", blank=True, editable=False)
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
