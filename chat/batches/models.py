"""The tables of files, with their contents, which all web processes and maintenance workers reach here, and batches."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from chat.access.models import Project

CHUNK_BYTES = 2**20


class Purpose(models.TextChoices):
    """The purpose of a file. Only the server gives the last one."""

    BATCH = "batch", "Batch"
    USER_DATA = "user_data", "User data"
    ASSISTANTS = "assistants", "Assistants"
    VISION = "vision", "Vision"
    BATCH_OUTPUT = "batch_output", "Batch output"


class ProjectFile(models.Model):
    """A file without its content, which is in chunks. Nobody sees it before it is complete.

    `num_bytes` counts against the quota of the project from the beginning. `expires_at` None: kept until it is deleted.
    """

    public_id = models.CharField("file id", max_length=40, unique=True, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="files")
    key_public_id = models.CharField("key", max_length=16, default="")
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=16, choices=Purpose.choices)
    num_bytes = models.BigIntegerField("size", default=0)
    is_complete = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        verbose_name = "file"
        indexes = (
            models.Index(fields=("project", "-id"), name="file_project"),
            models.Index(fields=("expires_at",), name="file_expiry"),
        )

    def __str__(self) -> str:
        return f"{self.filename} ({self.public_id})"


class FileChunk(models.Model):
    """A part of a file with CHUNK_BYTES, or fewer if it is the last. `number` counts from 0."""

    file = models.ForeignKey(ProjectFile, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        ordering = ("number",)
        constraints = (models.UniqueConstraint(fields=("file", "number"), name="chunk_of_file"),)

    def __str__(self) -> str:
        return f"{self.file_id}/{self.number}"


class BatchStatus(models.TextChoices):
    """The state of a batch. The last four are final."""

    VALIDATING = "validating", "Validating"
    IN_PROGRESS = "in_progress", "In progress"
    FINALIZING = "finalizing", "Finalizing"
    CANCELLING = "cancelling", "Cancelling"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    EXPIRED = "expired", "Expired"
    CANCELLED = "cancelled", "Cancelled"


OPEN_STATUSES = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)


class Batch(models.Model):
    """One batch. Files and the key are named by value: history stays when they go. Instants carry the API's names.

    `ends_as`: the status after `finalizing`. `claimed_by`, `claimed_until`: the maintenance worker that works on it.
    """

    public_id = models.CharField("batch id", max_length=40, unique=True, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="batches")
    key_public_id = models.CharField("key", max_length=16, default="")
    endpoint = models.CharField(max_length=64)
    completion_window = models.CharField(max_length=8)
    input_file_id = models.CharField("input file", max_length=40)
    output_file_id = models.CharField("output file", max_length=40, default="")
    error_file_id = models.CharField("error file", max_length=40, default="")
    output_expires_s = models.PositiveIntegerField(null=True)
    metadata = models.JSONField(null=True)
    model = models.CharField(max_length=200, default="")
    status = models.CharField(max_length=16, choices=BatchStatus.choices, default=BatchStatus.VALIDATING)
    ends_as = models.CharField(max_length=16, default="")
    errors = models.JSONField(default=list)
    num_lines = models.PositiveIntegerField("requests", default=0)
    num_completed = models.PositiveIntegerField("completed", default=0)
    num_failed = models.PositiveIntegerField("failed", default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    in_progress_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    expired_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    claimed_by = models.CharField(max_length=40, default="")
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "batches"
        indexes = (
            models.Index(fields=("project", "-id"), name="batch_project"),
            models.Index(fields=("status", "-id"), name="batch_status"),
        )

    def __str__(self) -> str:
        return self.public_id

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES


class BatchResult(models.Model):
    """The line of the output or error file for one request. It is deleted when the files are written."""

    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="results")
    line = models.PositiveIntegerField()
    is_error = models.BooleanField()
    text = models.TextField()

    class Meta:
        ordering = ("line",)
        constraints = (models.UniqueConstraint(fields=("batch", "line"), name="one_result_per_line"),)

    def __str__(self) -> str:
        return f"{self.batch_id}/{self.line}"
