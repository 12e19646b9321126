"""Registration of the application with Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_save


class ChatConfig(AppConfig):
    name = "chat"
    label = "chat"
    verbose_name = "Lightcone"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Hear of every new account, however it is made."""
        post_save.connect(_welcome, sender=settings.AUTH_USER_MODEL, dispatch_uid="chat.apps")


def _welcome(sender: Any, instance: Any, created: bool, raw: bool, **_: Any) -> None:
    """Let a new account chat; one of a fixture (`raw`) brings its permissions along."""
    from chat.access.people import playground_grant  # models are there now

    if created and not raw:
        playground_grant(user=instance)
