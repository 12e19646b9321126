"""`manage.py chat [MODEL]`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from lightcone_site.terminal.command import conversation, ended_in_words, server_arguments_add

HISTORY, HISTORY_LINES = "terminal_history", 1000


class Command(BaseCommand):
    help = "Talk to a model of a running Lightcone in the terminal. /help shows what else there is."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", nargs="?", default="", help="else the default model")
        server_arguments_add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with ended_in_words(), _history(settings.DATA_DIR / "run" / HISTORY):
            talk = conversation(options, self.stdout)
            if self.stdout.isatty():
                self.stdout.write(f"{talk.model}. /help shows commands, Ctrl-D leaves.")
            while True:
                try:
                    talk.run(input if sys.stdin.isatty() else _read_line)
                    return
                except KeyboardInterrupt:
                    self.stdout.write("")


def _read_line(prompt: str) -> str:
    """Read a line of a pipe, which wants no prompt. Raises EOFError."""
    if line := sys.stdin.readline():
        return line.rstrip("\n")
    raise EOFError


@contextlib.contextmanager
def _history(file: Path) -> Iterator[None]:
    """Keep what was typed for the next time, where there is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import readline  # only Unix has it

    readline.set_history_length(HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            file.chmod(0o600)
