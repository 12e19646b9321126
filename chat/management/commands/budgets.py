"""Rebuild the counters of budgets in Valkey from the database: `manage.py budgets rebuild`."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError

from chat.budgets.counters import Rebuild

TRIES, PAUSE_S = 20, 0.25


class Command(BaseCommand):
    help = "Set what Valkey counts of hard budgets to what the database has, and what running requests reserve."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("act", choices=["rebuild"])

    def handle(self, *args: Any, **options: Any) -> None:
        """Try until the usage writer has stored every request that had ended at the start."""
        try:
            rebuild = Rebuild()
            for _ in range(TRIES):
                num_set = rebuild.turn()
                if num_set is not None:
                    self.stdout.write(f"Counters of {num_set} hard budgets are those of the database.")
                    return
                time.sleep(PAUSE_S)
        except (RedisError, OSError) as error:
            raise CommandError(f"Valkey does not answer: {error}") from error
        raise CommandError(
            "Ended requests wait to be written into the database; is the maintenance worker running? Try again then."
        )
