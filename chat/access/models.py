"""Who may call: organisation > project > key. A key is an identity; its secrets come and go under it (rotation)."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from chat.access.checks import check_networks, check_origins, check_rights, check_texts


class Right(models.TextChoices):
    """What a key may be used for. The last three are powers over the model's worker: code, templates and memory that a request brings."""

    INFERENCE = "inference", "Inference"
    USAGE_READ = "usage_read", "Read usage"
    KEYS_MANAGE = "keys_manage", "Manage keys"
    CHAT_TEMPLATE = "chat_template", "Send chat templates"
    LOGITS_PROCESSORS = "logits_processors", "Use logits processors"
    MM_KWARGS = "mm_kwargs", "Set media options"


def give_permission(right: str) -> str:
    """The name of the permission to make keys with this right, without its application."""
    return f"give_{right}"


def default_rights() -> list[str]:
    return [str(Right.INFERENCE)]


class Org(models.Model):
    """The owner of projects."""

    name = models.CharField(max_length=120, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "organisation"

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    """Owns keys and their usage; it is the tenant that prefix caches are separated by.

    `members` are the people who may make and change its keys, as far as their permissions on keys go; superusers may in every project.
    """

    org = models.ForeignKey(Org, on_delete=models.PROTECT, related_name="projects", verbose_name="organisation")
    name = models.CharField(max_length=120)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="projects", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        permissions = (("use_playground", "Can chat in the playground"),)
        constraints = (models.UniqueConstraint(fields=("org", "name"), name="project_name_in_org"),)

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """The identity of a key: scopes, limits and history belong to it, never to one of its secrets.

    `model_names` None means every model, and an empty list none; names are kept as text, so that deleting a model never
    widens a key. No network and no origin means every one.
    """

    public_id = models.CharField("key id", max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=120)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="keys")
    rights = models.JSONField(default=default_rights, blank=True, validators=[check_rights])
    model_names = models.JSONField("allowed models", null=True, blank=True, default=None, validators=[check_texts])
    networks = models.JSONField("allowed networks", default=list, blank=True, validators=[check_networks])
    origins = models.JSONField("allowed browser origins", default=list, blank=True, validators=[check_origins])
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    max_concurrency = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    min_priority = models.SmallIntegerField("priority", default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = "API key"
        permissions = (
            *(
                (give_permission(right), f"Can give keys the right “{label}”")
                for right, label in Right.choices
                if right != "inference"
            ),
            ("give_urgency", "Can give keys a priority below 0"),
        )

    def __str__(self) -> str:
        return f"{self.name} (lc_{self.public_id}_…)"


class ApiKeySecret(models.Model):
    """One secret of a key: a keyed digest of the whole key text and its last four characters, never the text."""

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="secrets")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pepper_version = models.CharField(max_length=8, editable=False)
    last4 = models.CharField(max_length=4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"…{self.last4}"
