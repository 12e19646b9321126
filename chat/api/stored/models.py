"""Answers that clients may fetch again: the request and what came of it. Only chat.api.stored.services writes here.

Content is kept as JSON in bytes, as the databases' own JSON refuses characters that prompts may hold. Rows name
projects by value, as history does, and are deleted when they expire.
"""

from __future__ import annotations

from django.db import models


class StoredKind(models.TextChoices):
    """The API of the answer."""

    CHAT = "chat.completion", "Chat completion"
    RESPONSE = "response", "Response"


class StoredState(models.TextChoices):
    """The state of an answer. An unfinished one goes on without its client."""

    UNFINISHED = "unfinished", "Unfinished"
    FINISHED = "finished", "Finished"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


class StoredAnswer(models.Model):
    """One answer under the id that its client knows. Reused in one project, the id stands for the later answer.

    `request` has what its API needs to show, finish and continue it. `answer` is the body, empty until there is one.
    `num_bytes`, the size of both, counts against the project's quota.
    """

    run_id = models.UUIDField(primary_key=True)
    public_id = models.CharField("id", max_length=255)
    project_id = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=StoredKind.choices)
    state = models.CharField(max_length=16, choices=StoredState.choices, default=StoredState.FINISHED)
    model = models.CharField(max_length=200)
    metadata = models.JSONField(default=dict, blank=True)
    request = models.BinaryField()
    answer = models.BinaryField(default=b"")
    num_bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ("-run_id",)
        verbose_name = "stored answer"
        constraints = (models.UniqueConstraint(fields=("project_id", "kind", "public_id"), name="stored_public_id"),)
        indexes = (
            models.Index(fields=("project_id", "kind", "-run_id"), name="stored_newest"),
            models.Index(fields=("state",), condition=models.Q(state="unfinished"), name="stored_unfinished"),
            models.Index(fields=("expires_at",), name="stored_expiry"),
            models.Index(fields=("project_id", "num_bytes"), name="stored_size"),
        )

    def __str__(self) -> str:
        return str(self.public_id)
