"""The tables of usage: one row per run, and sums per hour. Only `services.py` writes them.

Organisations, projects and keys are values, not foreign keys: history stays when they are deleted. Id 0 and an empty
key stand for a run without one (the playground).
"""

from __future__ import annotations

from django.db import models

TTFT_BOUNDS_MS = (10, 25, 50, 100, 200, 350, 500, 750, 1000, 2000, 4000, 8000, 20000)
TTFT_COLUMNS = (*(f"ttft_le_{bound}" for bound in TTFT_BOUNDS_MS), f"ttft_over_{TTFT_BOUNDS_MS[-1]}")


class RequestLog(models.Model):
    """The metadata of one run, without prompt and output. Run ids begin with their time, so the newest is largest."""

    run_id = models.UUIDField(primary_key=True)
    arrived_at = models.DateTimeField()
    org_id = models.BigIntegerField(default=0)
    project_id = models.BigIntegerField(default=0)
    key_public_id = models.CharField("key", max_length=16, default="")
    dialect = models.CharField(max_length=16, default="")
    route = models.CharField(max_length=100, default="")
    is_stream = models.BooleanField("stream", default=False)
    model_asked = models.CharField(max_length=200, default="")
    model = models.CharField(max_length=200, default="")
    status = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=16)
    finish_reason = models.CharField(max_length=16, default="")
    error_code = models.CharField(max_length=64, default="")
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    reasoning_tokens = models.PositiveIntegerField(default=0, db_default=0)
    """Part of `completion_tokens`."""
    queue_ms = models.FloatField("time in queue (ms)", null=True)
    ttft_ms = models.FloatField("time to first token (ms)", null=True)
    duration_ms = models.FloatField("duration (ms)", null=True)
    cost_nanos = models.BigIntegerField("cost (billionths)", default=0)
    """Billionths of LIGHTCONE_CURRENCY, by the price in force as the run ended. Later ones change no row."""
    price_id = models.BigIntegerField("price", default=0, db_default=0)
    """The row of `ModelPrice` by which it cost that; 0: none."""
    attempts = models.PositiveSmallIntegerField(default=0)
    worker = models.CharField(max_length=100, default="")
    client_request_id = models.CharField(max_length=200, default="")
    user_label = models.CharField("user", max_length=256, default="")
    user_agent = models.CharField(max_length=300, default="")
    address = models.CharField(max_length=45, default="")
    metadata = models.JSONField(default=dict)
    batch_id = models.CharField("batch", max_length=40, default="")
    retry_count = models.PositiveSmallIntegerField("times sent before", default=0)
    patience_s = models.FloatField("client's read time-out (s)", null=True)

    class Meta:
        ordering = ("-run_id",)
        verbose_name = "request"
        indexes = (
            models.Index(fields=("outcome", "-run_id"), name="log_outcome"),
            models.Index(fields=("status", "-run_id"), name="log_status"),
            models.Index(fields=("model", "-run_id"), name="log_model"),
            models.Index(fields=("key_public_id", "-run_id"), name="log_key"),
            models.Index(fields=("project_id", "-run_id"), name="log_project"),
            models.Index(fields=("client_request_id",), name="log_client_id"),
            models.Index(fields=("batch_id",), condition=~models.Q(batch_id=""), name="log_batch"),
        )

    def __str__(self) -> str:
        return self.run_id.hex


class UsageHour(models.Model):
    """Sums over the runs that arrived in one hour, by key, model and status class (2, 4, 5).

    `num_left` counts the 499s of class 4, which are no errors. `ttft_le_X` counts runs whose first token came within X
    ms and after the next lower bound. Milliseconds are whole, so that sums are exact.
    """

    period_start = models.DateTimeField()
    org_id = models.BigIntegerField(default=0)
    project_id = models.BigIntegerField(default=0)
    key_public_id = models.CharField("key", max_length=16, default="")
    model = models.CharField(max_length=200, default="")
    status_class = models.PositiveSmallIntegerField()
    num_requests = models.BigIntegerField("requests", default=0)
    num_left = models.BigIntegerField("clients who left", default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    cost_nanos = models.BigIntegerField("cost (billionths)", default=0)
    duration_ms = models.BigIntegerField(default=0)
    queue_ms = models.BigIntegerField(default=0)
    ttft_le_10 = models.BigIntegerField(default=0)
    ttft_le_25 = models.BigIntegerField(default=0)
    ttft_le_50 = models.BigIntegerField(default=0)
    ttft_le_100 = models.BigIntegerField(default=0)
    ttft_le_200 = models.BigIntegerField(default=0)
    ttft_le_350 = models.BigIntegerField(default=0)
    ttft_le_500 = models.BigIntegerField(default=0)
    ttft_le_750 = models.BigIntegerField(default=0)
    ttft_le_1000 = models.BigIntegerField(default=0)
    ttft_le_2000 = models.BigIntegerField(default=0)
    ttft_le_4000 = models.BigIntegerField(default=0)
    ttft_le_8000 = models.BigIntegerField(default=0)
    ttft_le_20000 = models.BigIntegerField(default=0)
    ttft_over_20000 = models.BigIntegerField(default=0)

    class Meta:
        ordering = ("-period_start", "-id")
        verbose_name = "hour of usage"
        verbose_name_plural = "usage by hour"
        constraints = (
            models.UniqueConstraint(
                fields=("period_start", "org_id", "project_id", "key_public_id", "model", "status_class"),
                name="usage_hour_key",
            ),
        )
        indexes = (
            models.Index(fields=("project_id", "-period_start"), name="usage_project"),
            models.Index(fields=("key_public_id", "-period_start"), name="usage_key"),
            models.Index(fields=("model", "-period_start"), name="usage_model"),
        )

    def __str__(self) -> str:
        return f"{self.period_start:%Y-%m-%d %H:00} {self.model}"
