"""Registration of the console with Django: its admin site is ours. The URL table (urls.py) loads its pages."""

from __future__ import annotations

from django.contrib.admin.apps import SimpleAdminConfig


class ConsoleConfig(SimpleAdminConfig):
    default_site = "chat.access.admin.site.ConsoleSite"

    def ready(self) -> None:
        super().ready()
        from chat.access.console_history import console_history_connect  # models are there now

        console_history_connect()
