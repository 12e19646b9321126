"""The tables of usage: one row per run, and sums by hour and day. Only `services.py` and `sums.py` write them.

Organisations, projects, keys and people are values, not foreign keys: history stays when they are deleted. Id 0 and an
empty key stand for a run without one (the playground has no key, a key of a project no person).
"""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _

TTFT_BOUNDS_MS = (10, 25, 50, 100, 200, 350, 500, 750, 1000, 2000, 4000, 8000, 20000)
TTFT_COLUMNS = (*(f"ttft_le_{bound}" for bound in TTFT_BOUNDS_MS), f"ttft_over_{TTFT_BOUNDS_MS[-1]}")
GAP_BOUNDS_MS = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400, 1000, 4000)
GAP_COLUMNS = (*(f"gap_le_{bound}" for bound in GAP_BOUNDS_MS), f"gap_over_{GAP_BOUNDS_MS[-1]}")
AMOUNTS = (
    *("num_requests", "num_left", "num_theirs", "num_ours"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
    *("cost_nanos", "duration_ms", "queue_ms"),
)
MEASURES = (*AMOUNTS, "audio_ms", *TTFT_COLUMNS, *GAP_COLUMNS)
HOUR, DAY = 1, 24
"""The lengths of periods, in hours."""


class RequestLog(models.Model):
    """The metadata of one run, without prompt and output. Run ids begin with their time, so the newest is largest."""

    run_id = models.UUIDField(primary_key=True)
    arrived_at = models.DateTimeField()
    org_id = models.BigIntegerField(default=0)
    project_id = models.BigIntegerField(default=0)
    key_public_id = models.CharField("key", max_length=16, default="")
    account_id = models.BigIntegerField("account", null=True)
    """Whose chat or personal key asked. None: a key of the project, or nobody. It stays when the account is deleted."""
    dialect = models.CharField(max_length=16, default="")
    route = models.CharField(max_length=100, default="")
    is_stream = models.BooleanField("stream", default=False)
    model_asked = models.CharField(max_length=200, default="")
    model = models.CharField(max_length=200, default="")
    status = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=16)
    finish_reason = models.CharField(max_length=16, default="")
    error_code = models.CharField(max_length=64, default="")
    error_message = models.CharField("error", max_length=500, null=True)  # noqa: DJ001
    """None in rows from before it was kept: a default would have SQLite copy the table."""
    parameters = models.JSONField(null=True)
    """How the answer was asked for, as far as it differs from the defaults; no texts. None in older rows."""
    media = models.JSONField(null=True)
    """What it had beside text: `number` and `bytes` by kind (image, audio, video, file), `tokens` of the prompt, and
    `duration_ms` of sound that was written down. None in older rows."""
    limit_hit = models.CharField("limit", max_length=120, null=True)  # noqa: DJ001
    """The limit or budget that refused the request: whose, what, how much. None in older rows."""
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    reasoning_tokens = models.PositiveIntegerField(null=True)
    """Part of `completion_tokens`. None in older rows."""
    queue_ms = models.FloatField("time in queue (ms)", null=True)
    ttft_ms = models.FloatField("time to first token (ms)", null=True)
    duration_ms = models.FloatField("duration (ms)", null=True)
    cost_nanos = models.BigIntegerField("cost (billionths)", default=0)
    """Billionths of LIGHTCONE_CURRENCY, by the price in force as the run ended. Later ones change no row."""
    price_id = models.BigIntegerField("price", null=True)
    """The row of `ModelPrice` by which it cost that; 0: none. None in older rows."""
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
            models.Index(fields=("org_id", "-run_id"), name="log_org"),
            models.Index(fields=("account_id", "-run_id"), name="log_account"),
            models.Index(
                fields=("client_request_id", "-run_id"),
                name="log_client_request",
                opclasses=("varchar_pattern_ops", "uuid_ops"),
            ),
            models.Index(
                fields=("user_label", "-run_id"), name="log_label", opclasses=("varchar_pattern_ops", "uuid_ops")
            ),
            models.Index(
                fields=("batch_id", "-run_id"), name="log_batch_run", opclasses=("varchar_pattern_ops", "uuid_ops")
            ),
        )

    def __str__(self) -> str:
        return self.run_id.hex


class RequestText(models.Model):
    """What one run was asked and answered, redacted, where its project keeps texts."""

    run_id = models.UUIDField(primary_key=True)
    org_id = models.BigIntegerField(default=0)
    project_id = models.BigIntegerField(default=0)
    packed = models.BinaryField()
    """JSON of `request` and `answers` (chat/relay/state/kept_texts.py), compressed by zlib."""
    num_bytes = models.PositiveIntegerField()
    """Of the JSON."""
    is_cut = models.BooleanField()

    class Meta:
        ordering = ("-run_id",)
        verbose_name = "text of a request"
        indexes = (models.Index(fields=("project_id", "-run_id"), name="log_text_project"),)

    def __str__(self) -> str:
        return self.run_id.hex


class StatusClass(StrEnum):
    """How a request ended, and whose fault it was if badly."""

    ANSWERED = "answered"
    LEFT = "left"
    THEIRS = "theirs"
    OURS = "ours"


STATUS_LABELS = {
    StatusClass.ANSWERED.value: _("answered"),
    StatusClass.LEFT.value: _("client left"),
    StatusClass.THEIRS.value: _("error of the client"),
    StatusClass.OURS.value: _("error of the server"),
}


class Dimension(StrEnum):
    """What usage is told apart by."""

    ALL = "all"
    PROJECT = "project"
    KEY = "key"
    USER = "user"
    MODEL = "model"
    ROUTE = "route"
    STATUS = "status"


class Measures(models.Model):
    """What is summed over the runs that arrived in a period: the columns of `MEASURES`.

    `num_left` counts clients that left before their answer was complete, which are no errors. `num_theirs` and
    `num_ours` are errors of clients (4xx) and of the server (5xx). `reasoning_tokens` are a part of
    `completion_tokens`, `cached_tokens` of `prompt_tokens`. `audio_ms` is the length of sound that was written down.

    `ttft_le_X` counts runs whose first token came within X ms and after the next lower bound, `gap_le_X` those with
    such a mean time between two tokens. Milliseconds are whole, so that sums are exact.
    """

    # The default of the database is for processes of the version before, which write rows without it.
    audio_ms = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


for _name in (*AMOUNTS, *TTFT_COLUMNS, *GAP_COLUMNS):
    Measures.add_to_class(_name, models.BigIntegerField(default=0))


class UsageSum(Measures):
    """The sums of one hour or day by everything that usage is told apart by: the facts."""

    length_h = models.PositiveSmallIntegerField()
    """HOUR or DAY (UTC)."""
    start_h = models.PositiveIntegerField()
    """Hours since 1970. Whole numbers make days of any zone with whole hours by a division, in any database."""
    org_id = models.BigIntegerField(default=0)
    project_id = models.BigIntegerField(default=0)
    key_public_id = models.CharField(max_length=16, default="")
    account_id = models.BigIntegerField(default=0)
    model = models.CharField(max_length=200, default="")
    route = models.CharField(max_length=100, default="")
    status_class = models.CharField(max_length=8)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=(
                    *("length_h", "start_h", "org_id", "project_id", "key_public_id", "account_id", "model", "route"),
                    "status_class",
                ),
                name="usage_sum_key",
            ),
        )
        indexes = (
            models.Index(fields=("project_id", "length_h", "start_h"), name="usage_sum_project"),
            models.Index(fields=("key_public_id", "length_h", "start_h"), name="usage_sum_key_id"),
            models.Index(fields=("account_id", "length_h", "start_h"), name="usage_sum_user"),
            models.Index(fields=("model", "length_h", "start_h"), name="usage_sum_model"),
        )

    def __str__(self) -> str:
        return f"{self.length_h} h from hour {self.start_h}"


class UsageTotal(Measures):
    """The sums of one hour or day and organisation by one dimension alone, for pages over long times."""

    length_h = models.PositiveSmallIntegerField()
    start_h = models.PositiveIntegerField()
    org_id = models.BigIntegerField(default=0)
    dimension = models.CharField(max_length=8)
    value = models.CharField(max_length=200, default="")
    """Of the dimension, as text."""

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("dimension", "length_h", "start_h", "org_id", "value"), name="usage_total_key"
            ),
        )
        indexes = (
            models.Index(fields=("dimension", "length_h", "start_h", "org_id", "value", *AMOUNTS), name="usage_total"),
            models.Index(fields=("dimension", "length_h", "value", "start_h"), name="usage_total_value"),
        )

    def __str__(self) -> str:
        return f"{self.length_h} h from hour {self.start_h}: {self.dimension} {self.value}"
