"""`manage.py serve`: its help, and its process with Django. manage.py starts the supervisor itself without Django."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from lightcone_site.serve.preparation import answer_requests
from lightcone_site.serve.serving import main


class Command(BaseCommand):
    help = (
        "Start and supervise web, model worker, maintenance worker and (unless LIGHTCONE_REDIS_URL names one) Valkey."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--prepare", type=int, metavar="FD", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["prepare"] is None:
            sys.exit(main())
        answer_requests(options["prepare"])
