"""The audit log: who did what, when, from where. Only `services.py` writes it, and nobody changes it.

An entry names people, keys and objects by value: it stays when they are deleted. The database refuses changes too
(triggers.py).
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat.audit.actions import ACTIONS, ACTORS, KINDS

UNCHANGEABLE = "Audit entries are neither changed nor deleted; LIGHTCONE_AUDIT_DAYS says how long they are kept."


class Unchangeable(TypeError):
    """Raised where code would change or delete an audit entry."""

    def __init__(self) -> None:
        super().__init__(UNCHANGEABLE)


class AuditEntries(models.QuerySet["AuditEntry"]):
    """Entries, which can be read and added."""

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise Unchangeable

    update = delete = bulk_update = update_or_create = _refuse


class AuditEntry(models.Model):
    """One act. `before` and `after` have the fields that it changed, with secrets masked."""

    at = models.DateTimeField(default=timezone.now, editable=False)
    actor_kind = models.CharField(max_length=8)
    actor_id = models.CharField(max_length=64, default="")
    """The primary key of a user, or the id of a key."""
    actor_name = models.CharField(max_length=150, default="")
    address = models.CharField(max_length=64, default="")
    """The client's address; of a command and the server, the name of the machine."""
    source = models.CharField(max_length=300, default="")
    """Console, playground or API; of a command, its line."""
    request_id = models.CharField(max_length=128, default="")
    action = models.CharField(max_length=40)
    """Of `ACTIONS`; no choices, as each new action would be a migration."""
    object_kind = models.CharField(max_length=24)
    object_id = models.CharField(max_length=100, default="")
    object_name = models.CharField(max_length=200, default="")
    org_id = models.BigIntegerField(default=0)
    """0: the installation."""
    project_id = models.BigIntegerField(default=0)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    objects = AuditEntries.as_manager()

    class Meta:
        ordering = ("-id",)
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=("at",), name="audit_at"),
            models.Index(fields=("actor_name", "-id"), name="audit_actor_name"),
            models.Index(fields=("actor_kind", "actor_id", "-id"), name="audit_actor"),
            models.Index(fields=("action", "-id"), name="audit_action"),
            models.Index(fields=("object_kind", "-id"), name="audit_object_kind"),
            models.Index(fields=("object_kind", "object_id", "-id"), name="audit_object"),
            models.Index(fields=("object_name", "-id"), name="audit_object_name"),
            models.Index(fields=("org_id", "-id"), name="audit_org"),
            models.Index(fields=("project_id", "-id"), name="audit_project"),
        )

    def __str__(self) -> str:
        return f"{self.action_label}: {self.object_name or self.object_id}".removesuffix(": ")

    def save(self, *args: Any, **options: Any) -> None:
        """Add the entry. Raises Unchangeable for one that was added before."""
        if self.pk is not None:
            raise Unchangeable
        super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> NoReturn:
        raise Unchangeable

    @property
    def action_label(self) -> str:
        return str(ACTIONS.get(self.action, self.action))

    @property
    def kind_label(self) -> str:
        return str(KINDS.get(self.object_kind, self.object_kind))

    @property
    def actor_label(self) -> str:
        return str(ACTORS.get(self.actor_kind, self.actor_kind))
