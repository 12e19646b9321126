"""Files of projects: what clients upload, and what batches put out. In SQL, where all web processes and maintenance workers reach it."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from chat.models.access import Project

CHUNK_BYTES = 2**20


class Purpose(models.TextChoices):
    """What a file is for; the last is for the server alone to give."""

    BATCH = "batch", "Batch"
    USER_DATA = "user_data", "User data"
    ASSISTANTS = "assistants", "Assistants"
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
    """Up to CHUNK_BYTES of a file; all but the last are full. `number` counts from 0."""

    file = models.ForeignKey(ProjectFile, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        ordering = ("number",)
        constraints = (models.UniqueConstraint(fields=("file", "number"), name="chunk_of_file"),)

    def __str__(self) -> str:
        return f"{self.file_id}/{self.number}"
