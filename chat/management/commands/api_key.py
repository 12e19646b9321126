"""`manage.py api_key create | list | rotate | revoke`: API keys from the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.utils import timezone

from chat.access import selectors
from chat.access.chat_projects import default_project
from chat.access.checks import Right
from chat.access.keys import KeyRefused, key_create, key_delete, key_rotate
from chat.access.models import ApiKey, Project, default_rights


class Command(BaseCommand):
    help = "Create, list, rotate and revoke API keys. A key's text is printed once, at creation and rotation."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        create = acts.add_parser("create", help="make a key and print it")
        create.add_argument("name")
        create.add_argument("--project", help="name of the project (default: the first one)")
        create.add_argument("--model", action="append", dest="models", help="allow this model only; may be repeated")
        create.add_argument(
            "--right",
            action="append",
            dest="rights",
            choices=Right.values,
            help="give this right; may be repeated (default: inference alone)",
        )
        create.add_argument("--days", type=int, help="days until the key expires (default: never)")
        acts.add_parser("list", help="list the keys that are not deleted")
        rotate = acts.add_parser("rotate", help="give a key a new secret and print the new text")
        rotate.add_argument("key_id")
        rotate.add_argument(
            "--overlap-hours", type=float, default=24.0, help="how long the old secret stays valid (default: 24)"
        )
        revoke = acts.add_parser("revoke", help="delete a key; its history stays")
        revoke.add_argument("key_id")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['act']}")(options)
        except (KeyRefused, ValidationError) as error:
            raise CommandError("; ".join(getattr(error, "messages", [str(error)]))) from error
        except DatabaseError as error:
            raise CommandError(
                f"the database cannot be used ({error}); start Lightcone once, which prepares it"
            ) from error

    def _create(self, options: dict[str, Any]) -> None:
        _, raw = key_create(
            project=_project(options["project"]),
            name=options["name"],
            rights=options["rights"] or default_rights(),
            model_names=options["models"],
            expires_at=timezone.now() + timedelta(days=options["days"]) if options["days"] is not None else None,
        )
        self.stdout.write(raw)
        self.stderr.write("This is the only time that the key is shown.")

    def _list(self, options: dict[str, Any]) -> None:
        for key in selectors.keys_listed():
            is_expired = key.expires_at and key.expires_at <= timezone.now()
            state = "disabled" if key.disabled_at else "expired" if is_expired else "active"
            used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never used"
            self.stdout.write(
                f"{key.public_id:16}  …{key.last4 or '----'}  {state:8}  {used:16}  {key.project}  {key.name}"
            )

    def _rotate(self, options: dict[str, Any]) -> None:
        self.stdout.write(key_rotate(key=_key(options["key_id"]), overlap=timedelta(hours=options["overlap_hours"])))
        self.stderr.write("This is the only time that the key is shown.")

    def _revoke(self, options: dict[str, Any]) -> None:
        key = _key(options["key_id"])
        key_delete(key=key)
        self.stdout.write(f"The key {key} is revoked.")


def _project(name: str | None) -> Project:
    if name is None:
        return default_project()
    projects = list(Project.objects.filter(name=name)[:2])
    if len(projects) != 1:
        raise CommandError(f"{'no' if not projects else 'more than one'} project is named {name!r}")
    return projects[0]


def _key(public_id: str) -> ApiKey:
    key = ApiKey.objects.filter(public_id=public_id, deleted_at=None).first()
    if key is None:
        raise CommandError(f"there is no key {public_id!r}; `api_key list` shows the key ids")
    return key
