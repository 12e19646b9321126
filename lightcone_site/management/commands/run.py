"""`manage.py run MODEL "PROMPT"`: one answer, for scripts and pipes."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lightcone_site.terminal.command import conversation, ended_in_words, server_arguments_add
from lightcone_site.terminal.conversation import printable, value_of


class Command(BaseCommand):
    help = "Answer one prompt with a model of a running Lightcone. What is piped in follows the prompt."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model")
        parser.add_argument("prompt", nargs="?", default="")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a parameter of the request; may be repeated",
        )
        parser.add_argument("--system", default="", help="how the model should behave")
        server_arguments_add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with ended_in_words():
            self._answer(options)

    def _answer(self, options: dict[str, Any]) -> None:
        parameters = {}
        for text in options["set"]:
            name, equals, value = text.partition("=")
            if not equals:
                raise CommandError(f"--set wants NAME=VALUE, got {text!r}")
            parameters[name] = value_of(value)
        piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
        prompt = "\n\n".join(text for text in (options["prompt"], piped.strip("\n")) if text)
        if not prompt:
            raise CommandError("there is no prompt: write it behind the model, or pipe it in")
        talk = conversation(options, self.stdout)
        talk.system, talk.parameters = options["system"], parameters
        reason = ""
        for piece in talk.pieces(prompt):
            reason = piece.finish_reason or reason
            if not piece.is_reasoning:
                talk.write(printable(piece.text) if talk.is_coloured else piece.text)
        self.stdout.write("")
        if reason == "length":
            self.stderr.write("(cut at max_tokens or at the end of the context)")
