"""What the commands `chat` and `run` share: which server is asked, as whom, and where text goes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser

from lightcone_site.serve.preparation import local_address
from lightcone_site.terminal.client import Client, TerminalError, installation_key
from lightcone_site.terminal.conversation import Conversation, printable

STOPPED_CODE, PIPE_CODE = 130, 141
"""Exit codes of a command that Ctrl-C, or the end of its reader, has stopped, as shells give them."""


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
def ended_in_words() -> Iterator[None]:
    """Turn refusals into the command's error, and end without a word if the user or the reader of a pipe leaves.

    Input that is no UTF-8 is read with replacements.
    """
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        yield
    except TerminalError as error:
        raise CommandError(printable(str(error))) from error
    except KeyboardInterrupt:
        sys.exit(STOPPED_CODE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CODE)
