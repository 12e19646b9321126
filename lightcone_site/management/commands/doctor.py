"""`manage.py doctor`: report what is missing or wrong, with a remedy. The exit code is 1 if there is a problem."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand

from lightcone_site.serve.console import Console
from lightcone_site.serve.diagnosis import CHECKS


class Command(BaseCommand):
    help = "Check Python, packages, model, device, spill file, data directory, database, Valkey, port and machine."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console()
        problems = 0
        for finding in chain.from_iterable(check() for check in CHECKS):
            if finding.is_problem:
                problems += 1
                console.problem(finding.area, finding.text)
                console.detail("", f"remedy: {finding.remedy}")
            else:
                console.ok(finding.area, finding.text)
        if problems:
            sys.exit(1)
