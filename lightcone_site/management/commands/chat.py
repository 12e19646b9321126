"""`manage.py chat [MODEL]`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from lightcone_site.serve.preparation import local_address
from lightcone_site.terminal.client import Client, TerminalError, installation_key
from lightcone_site.terminal.conversation import Conversation, printable

HISTORY, HISTORY_LINES = "terminal_history", 1000


class Command(BaseCommand):
    help = "Talk to a model of a running Lightcone in the terminal. /help shows what else there is."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", nargs="?", default="", help="else the default model")
        server_arguments_add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with pipes_closed_quietly(), _history(settings.DATA_DIR / "run" / HISTORY):
                talk = conversation(options, self.stdout)
                if self.stdout.isatty():
                    self.stdout.write(f"{talk.model}. /help shows commands, Ctrl-D leaves.")
                while True:
                    try:
                        talk.run(input if sys.stdin.isatty() else _read_line)
                        return
                    except KeyboardInterrupt:
                        self.stdout.write("")
        except TerminalError as error:
            raise CommandError(printable(str(error))) from error
        except KeyboardInterrupt:
            sys.exit(130)


def server_arguments_add(parser: CommandParser) -> None:
    """Add what says which server is asked, and as whom."""
    parser.add_argument("--url", default="", help="the root of another server, such as https://llm.example")
    parser.add_argument("--key", default="", help="an API key; else LIGHTCONE_API_KEY, or a key of this installation")


def conversation(options: dict[str, Any], stdout: Any) -> Conversation:
    """Return a conversation with the server and the model that the options name. Raises TerminalError."""

    def write(text: str) -> None:
        stdout.write(text, ending="")
        stdout.flush()

    if options["url"] and not options["key"]:
        raise TerminalError("another server wants a key of its own: give --key.")
    key = options["key"] or os.environ.get("LIGHTCONE_API_KEY", "") or installation_key()
    client = Client(options["url"].rstrip("/") or local_address()[1], key, is_local=not options["url"])
    model = options["model"]
    if not model:
        names = client.models()
        if not names:
            raise TerminalError("the server has no model for this key.")
        model = names[0]
    return Conversation(client, model, write, is_coloured=stdout.isatty())


@contextlib.contextmanager
def pipes_closed_quietly() -> Iterator[None]:
    """End the command without a word when the reader of its output has gone; read input that is no UTF-8."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


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
