"""The table of jobs on stored models: pulls, imports, checks and copies, which take seconds to hours."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class JobKind(models.TextChoices):
    PULL = "pull", _("Pull")
    IMPORT = "import", _("Import")
    CHECK = "check", _("Check")
    COPY = "copy", _("Copy")


class JobState(models.TextChoices):
    """The state of a job. The last three are final."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    CANCELLING = "cancelling", "Cancelling"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


OPEN_STATES = (JobState.WAITING, JobState.RUNNING, JobState.CANCELLING)


class ModelJob(models.Model):
    public_id = models.CharField("job id", max_length=40, unique=True, editable=False)
    kind = models.CharField(max_length=8, choices=JobKind.choices)
    asked = models.CharField(max_length=1024)
    """OWNER/NAME[:FORMAT] of a pull, the path of an import, the name of the model to check or copy."""
    revision = models.CharField(max_length=200, default="", blank=True)
    name = models.CharField(max_length=200, default="", blank=True)
    """The name to store the model under; empty until it is known."""
    state = models.CharField(max_length=12, choices=JobState.choices, default=JobState.WAITING)
    phase = models.CharField(max_length=40, default="", blank=True)
    num_bytes = models.BigIntegerField("size", default=0)
    num_done = models.BigIntegerField("fetched", default=0)
    rate = models.FloatField(default=0.0)
    """Bytes a second."""
    message = models.CharField(max_length=2000, default="", blank=True)
    """What was chosen and why, then what came of it."""
    asked_by = models.CharField(max_length=160, default="", blank=True)
    """The public id of a key, or the name of a user."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = "pull or import"
        verbose_name_plural = "pulls and imports"
        indexes = (models.Index(fields=("state",), name="model_job_state"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.asked}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES
