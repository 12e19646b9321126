"""`manage.py model check [PATH]`: load a model as the server would; say how each part is computed, and how fast."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.catalog.model_choice import NoModel
from chat.workers.engine_start import config_text, engine_config


class Command(BaseCommand):
    help = "Check a model: load it with the settings of this installation, and time its steps."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        check = parser.add_subparsers(dest="action", required=True).add_parser("check", help=self.help)
        check.add_argument("path", nargs="?", help="a GGUF file or a Hugging Face folder; else the served model")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            config = engine_config()
        except NoModel as error:
            raise CommandError(str(error)) from error
        if options["path"]:
            config = replace(config, model_path=Path(options["path"]).expanduser().absolute())
        command = [sys.executable, "-m", "engine.core.model_check", config_text(config)]
        done = subprocess.run(command, cwd=settings.BASE_DIR, check=False)
        if done.returncode:
            raise CommandError(f"{config.model_path} cannot be served with these settings", returncode=done.returncode)
