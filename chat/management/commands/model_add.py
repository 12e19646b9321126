"""`manage.py model_add NAME PATH`: enter a model into the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.catalog.services import model_path_check, model_register
from chat.relay.state.keys import model_slug, queue_of


class Command(BaseCommand):
    help = "Enter a model into the catalogue, or point an entered one to another file or folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the name that clients ask for")
        parser.add_argument("path", help="a GGUF file or a Hugging Face folder")
        parser.add_argument(
            "--elsewhere",
            action="store_true",
            help="the path is on the worker's machine: do not look for it on this one",
        )
        parser.add_argument(
            "--alias", action="append", default=[], dest="aliases", help="a further name; may be repeated"
        )
        parser.add_argument("--owned-by", default="lightcone")
        parser.add_argument("--default", action="store_true", help="serve this model where a request names none")

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["path"] if options["elsewhere"] else str(Path(options["path"]).expanduser().absolute())
        try:
            if not options["elsewhere"]:
                model_path_check(path=path)
            model = model_register(
                name=options["name"],
                path=path,
                aliases=tuple(options["aliases"]),
                owned_by=options["owned_by"],
                make_default=options["default"],
            )
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        self.stdout.write(f"{model.name} is served from {model.path} on the queue {queue_of(model_slug(model.name))}.")
