"""`manage.py usage rebuild --from DAY --until DAY`: make the sums of usage anew from the request log."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from chat.usage.sums import usage_rebuild

MOST_DAYS = 3660


class Command(BaseCommand):
    help = "Make sums of usage anew from the request log."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        rebuild = acts.add_parser("rebuild", help="make the sums of some days anew from the request log")
        rebuild.add_argument("--from", dest="first", type=day, required=True, help="the first day (UTC)")
        rebuild.add_argument("--until", dest="last", type=day, help="the last day (default: today)")
        rebuild.add_argument(
            "--trust-log",
            action="store_true",
            help="also where the log has fewer requests than the sums: lose what was pruned from it",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        first, last = options["first"], options["last"] or timezone.now().date()
        if not timedelta(0) <= last - first < timedelta(days=MOST_DAYS):
            raise CommandError(f"--until must not be before --from, nor {MOST_DAYS} days after it")
        done = usage_rebuild(first=first, last=last, trusts_log=options["trust_log"])
        for kept_day, project_id in done.kept:
            self.stderr.write(f"{kept_day}: the log has lost requests of project {project_id}, whose sums stay.")
        self.stdout.write(f"{done.num_requests} requests summed anew.")


def day(text: str) -> date:
    """Read a day. Raises ValueError, of which the parser makes its refusal."""
    found = date.fromisoformat(text)
    if not 2000 <= found.year < 9000:
        raise ValueError(text)
    return found
