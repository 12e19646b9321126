"""`manage.py model …`: the models on this machine. Pull, import, list, show, check, copy and remove them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from chat.catalog.model_choice import NoModel, model_choice
from chat.catalog.removal import ModelUnknown, model_remove
from chat.catalog.stored_models import stored_model_offer
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.local import import_note, model_import, models_at
from chat.model_store.manifest import Manifest
from chat.workers.engine_start import config_text, engine_config
from lightcone_site.terminal.conversation import printable

SHOW_EVERY_S, SAY_EVERY_S = 0.2, 10.0
"""How often progress is shown in a terminal, and in a file."""


class Command(BaseCommand):
    help = "Pull, import, list, show, check, copy and remove the models on this machine."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        pull = actions.add_parser("pull", help="fetch a model of the Hugging Face hub")
        pull.add_argument("repository", help="OWNER/NAME or OWNER/NAME:FORMAT, such as …:Q4_K_M or …:safetensors")
        pull.add_argument("--revision", default="main", help="a branch, tag or commit")
        pull.add_argument("--name", default="", help="the name to store it under, else NAME:FORMAT")
        import_ = actions.add_parser("import", help="take a model that is on this machine already")
        import_.add_argument("path", help="a GGUF file, a folder, a cache of Hugging Face or a folder of Ollama")
        import_.add_argument("--name", default="", help="the name to store it under; for a single model")
        actions.add_parser("list", help="list the models that are stored")
        show = actions.add_parser("show", help="show what a stored model is")
        show.add_argument("name")
        remove = actions.add_parser("rm", help="remove stored models, or what an unfinished pull has left")
        remove.add_argument("name", nargs="+")
        copy = actions.add_parser("copy", help="store a model under another name too; its files are shared")
        copy.add_argument("name")
        copy.add_argument("target")
        check = actions.add_parser(
            "check", help="compare a model's files with their hashes, load it and time its steps"
        )
        check.add_argument("model", nargs="?", help="a stored model, a GGUF file or a folder; else the served model")

    def handle(self, *args: Any, **options: Any) -> None:
        self._store = ModelStore(settings.LIGHTCONE_MODEL_STORE)
        try:
            getattr(self, f"_{options['action']}")(options)
        except StoreError as error:
            raise CommandError(printable(str(error))) from error
        except KeyboardInterrupt:
            is_pull = options["action"] == "pull"
            kept = "; what was fetched is kept: the same command goes on from there" if is_pull else ""
            raise CommandError(f"stopped{kept}") from None

    def _pull(self, options: dict[str, Any]) -> None:
        from chat.model_store.pulling import pull_plan  # imports what other actions do not need

        plan = pull_plan(
            options["repository"],
            revision=options["revision"],
            name=options["name"],
            token=settings.LIGHTCONE_HUB_TOKEN,
            device=settings.LIGHTCONE_DEVICE,
        )
        choice, place = plan.choice, plan.repository
        self.stdout.write(
            f"{options['repository'].partition(':')[0]} at {place.commit[:12]}: {choice.format} ({choice.reason}), "
            f"{choice.num_bytes / 1e9:.2f} GB"
        )
        shown = _Shown(self.stdout)
        try:
            manifest = plan.run(self._store, shown)
        finally:
            shown.end()
        self._say_stored(manifest)

    def _import(self, options: dict[str, Any]) -> None:
        found = models_at(Path(options["path"]).expanduser().absolute())
        if options["name"] and len(found) > 1:
            names = ", ".join(model.name for model in found)
            raise CommandError(f"--name is for one model, and there are {len(found)}: {names}")
        failed = []
        for model in found:
            try:
                manifest = model_import(self._store, model, options["name"])
                self._say_stored(manifest)
                if note := import_note(model, manifest):
                    self.stderr.write(printable(note))
            except StoreError as error:
                failed.append(model.name)
                self.stderr.write(printable(f"{model.name}: {error}"))
        if failed:
            raise CommandError(f"{len(failed)} of {len(found)} models were not imported: {', '.join(failed)}")

    def _list(self, options: dict[str, Any]) -> None:
        rows = [("NAME", "FORMAT", "SIZE", "CONTEXT", "SOURCE")]
        damaged = []
        for found in self._store.all():
            if isinstance(found, StoreError):
                damaged.append(str(found))
                continue
            size = f"{found.num_bytes / 1e9:.2f} GB"
            rows.append(
                (found.name, found.description.format, size, f"{found.description.context:,}", found.source_text)
            )
        unfinished = self._store.unfinished()
        if len(rows) == 1 and not damaged and not unfinished:
            self.stdout.write(
                f"No model is stored in {self._store.root}. `manage.py model pull OWNER/NAME` fetches one."
            )
            return
        if len(rows) > 1:
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                cells = zip(row, widths, strict=True)
                self.stdout.write(printable("  ".join(cell.ljust(width) for cell, width in cells).rstrip()))
        if unfinished:
            self.stdout.write(f"Not finished: {', '.join(unfinished)}. Pull them again, or remove them.")
        for text in damaged:
            self.stderr.write(printable(text))

    def _show(self, options: dict[str, Any]) -> None:
        manifest = self._store.get(options["name"])
        description = manifest.description
        defaults = ", ".join(f"{name} {value:g}" for name, value in description.defaults.items())
        facts = {
            "name": manifest.name,
            "kind": manifest.kind,
            "architecture": f"{description.architecture}, {description.num_layers} layers",
            "format": description.format,
            "size": f"{manifest.num_bytes:,} bytes, {len(manifest.files)} file{'s' * (len(manifest.files) > 1)}",
            "context": f"{description.context:,} tokens",
            "licence": description.licence or "not said",
            "source": manifest.source_text,
            "revision": manifest.source.revision or "none",
            "asked for": manifest.source.asked_revision or "nothing",
            "template": "yes" if description.has_template else "no",
            "calls": description.tool_parser,
            "reasoning": description.reasoning_parser,
            "defaults": defaults or "none",
            "stored": manifest.created_at,
            "path": str(self._store.model_path(manifest.name)),
        }
        for name, value in facts.items():
            self.stdout.write(f"{name:13} {printable(value)}")
        for file in manifest.files:
            self.stdout.write(printable(f"{'file':13} {file.path}  {file.num_bytes:,}  sha256:{file.sha256}"))

    def _rm(self, options: dict[str, Any]) -> None:
        for name in options["name"]:
            self.stdout.write(f"{name} is removed: {self._removed(name) / 1e9:.2f} GB.")

    def _removed(self, name: str) -> int:
        """Remove a model and return the bytes of its files."""
        try:
            return model_remove(name=name, store=self._store)
        except ModelUnknown:
            self._store.get(name)  # raises, and lists what is stored
            raise
        except ValidationError as error:
            raise CommandError(printable(" ".join(error.messages))) from error
        except DatabaseError:  # before the first start there is no catalogue
            return self._store.remove(name)

    def _copy(self, options: dict[str, Any]) -> None:
        self._say_stored(self._store.copy(options["name"], options["target"]))

    def _check(self, options: dict[str, Any]) -> None:
        try:
            config = engine_config()
        except NoModel as error:
            raise CommandError(str(error)) from error
        model = options["model"] or settings.LIGHTCONE_MODEL
        if model in self._store.names() and not os.path.exists(model):
            if problems := self._store.damaged(model):
                raise CommandError(f"{model} is damaged: {' '.join(problems)} Remove it and pull it again.")
            self.stdout.write("files         as they were stored")
        if options["model"]:
            choice = model_choice(path=model, name="", store=self._store.root)
            config = replace(config, model_path=choice.path)
        self.stdout.flush()
        command = [sys.executable, "-m", "engine.core.model_check", config_text(config)]
        done = subprocess.run(command, cwd=settings.BASE_DIR, check=False)
        if done.returncode:
            raise CommandError(f"{config.model_path} cannot be served with these settings", returncode=done.returncode)

    def _say_stored(self, manifest: Manifest) -> None:
        description = manifest.description
        self.stdout.write(
            f"{manifest.name} is stored: {description.architecture}, {description.format}, "
            f"{manifest.num_bytes / 1e9:.2f} GB, context {description.context:,}."
        )
        self._keep_catalogue(partial(stored_model_offer, store=self._store, manifest=manifest))

    def _keep_catalogue(self, change: Callable[[], object]) -> None:
        """Change the catalogue. Before the first start there is none, and a start enters all stored models."""
        try:
            change()
        except ValidationError as error:
            self.stderr.write(printable(f"It is not offered: {' '.join(error.messages)}"))
        except DatabaseError:
            self.stdout.write("It is offered from the next start of Lightcone on.")


class _Shown:
    """A line that shows how far a pull is; each phase has one of its own."""

    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout
        self._is_terminal = stdout.isatty()
        self._shown_at, self._phase = 0.0, ""

    def __call__(self, progress: Any) -> None:
        now = time.monotonic()
        pause = SHOW_EVERY_S if self._is_terminal else SAY_EVERY_S
        if progress.phase == self._phase and now - self._shown_at < pause and progress.done < progress.num_bytes:
            return
        self._shown_at = now
        if progress.phase != self._phase:
            self.end()
            self._phase = progress.phase
        text = progress.phase
        if progress.phase == "fetching":
            left = "" if progress.seconds_left == float("inf") else f", {progress.seconds_left:.0f} s left"
            text = (
                f"{progress.done / max(progress.num_bytes, 1):4.0%} of {progress.num_bytes / 1e9:.2f} GB, "
                f"{progress.rate / 1e6:.1f} MB/s{left}"
            )
        self._stdout.write(f"\r{text:60}" if self._is_terminal else text, ending="" if self._is_terminal else "\n")
        self._stdout.flush()

    def end(self) -> None:
        """End the line of a phase."""
        if self._is_terminal and self._phase:
            self._stdout.write("")
        self._phase = ""
