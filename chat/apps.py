"""Registration of the application with Django."""

from __future__ import annotations

from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "chat"
    label = "chat"
    verbose_name = "Lightcone"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Hear of every change of an account, however it is made, and of every sign-in."""
        from chat.access.account_audit import account_audit_connect  # models are there now
        from chat.access.sessions import sessions_connect
        from chat.budgets import services  # noqa: F401  # hears of budgets that go with what they are on

        account_audit_connect()
        sessions_connect()
