"""The console's history of changes outlives the accounts that made them, whatever deletes an account."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models.signals import pre_delete

from chat.access.people import account_heir


def console_history_connect() -> None:
    """Hear of every account that is deleted. Needs the console's tables."""
    pre_delete.connect(_keep, sender=User, dispatch_uid="console_history")


def _keep(instance: User, **_signal: Any) -> None:
    """Keep an account's entries in the history of changes by giving them to a stand-in account."""
    entries = LogEntry.objects.filter(user=instance)
    if entries.exists():
        entries.update(user=account_heir(account=instance))
