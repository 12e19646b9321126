"""`manage.py logs_prune --days N`: delete old request logs in small batches; usage sums stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from chat.usage.retention import request_logs_prune


class Command(BaseCommand):
    help = "Delete request logs older than a number of days. Usage sums stay."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=int, required=True, help="keep the requests of this many days")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["days"] < 1:
            raise CommandError(f"--days must be at least 1, got {options['days']}")
        num_deleted = request_logs_prune(before=timezone.now() - timedelta(days=options["days"]))
        self.stdout.write(f"{num_deleted} request logs deleted.")
