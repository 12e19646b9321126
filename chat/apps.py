"""Registration of the application with Django."""

from __future__ import annotations

from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "chat"
    label = "chat"
    verbose_name = "Lightcone"
    default_auto_field = "django.db.models.BigAutoField"
