"""Registration of the console with Django: its admin site is ours."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    default_site = "chat.access.admin.site.ConsoleSite"
