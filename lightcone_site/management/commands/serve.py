"""`manage.py serve`: everything on one machine, until Ctrl-C."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from lightcone_site.serve.console import Console
from lightcone_site.serve.serving import Refusal, serve


class Command(BaseCommand):
    help = (
        "Start and supervise web, model worker, maintenance worker and (unless LIGHTCONE_REDIS_URL names one) Valkey."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            serve(Console())
        except Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
