"""`manage.py audit list | export`: read the audit log. An export is an entry of its own."""

from __future__ import annotations

from datetime import UTC, date
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet

from chat.audit.actions import ACTIONS
from chat.audit.export import COLUMNS, audit_export_record, entry_values
from chat.audit.models import AuditEntry
from chat.audit.selectors import entries_between, entries_by, entries_on
from chat.console.export import CONTENT_TYPES, heading, pages_of, written

FILTERS = ("actor", "object", "action", "first", "last")


class Command(BaseCommand):
    help = "List or export the audit log, newest first."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        show = acts.add_parser("list", help="print a line for each of the newest entries")
        show.add_argument("--limit", type=int, default=50, help="how many at most (default: 50)")
        export = acts.add_parser("export", help="write all entries to standard output")
        export.add_argument("--format", choices=tuple(CONTENT_TYPES), default="jsonl")
        for one in (show, export):
            one.add_argument("--actor", default="", help="who: a name, or a kind and an id such as key:ab12cd34")
            one.add_argument("--object", default="", help="what: a name, or a kind and an id such as model:7")
            one.add_argument(
                "--action", default="", choices=("", *ACTIONS), metavar="ACTION", help="such as key.create"
            )
            one.add_argument("--from", dest="first", type=day, help="the first day, such as 2026-01-31 (UTC)")
            one.add_argument("--until", dest="last", type=day, help="the last day")

    def handle(self, *args: Any, **options: Any) -> None:
        found = _found(options)
        if options["act"] == "export":
            self._export(found, options)
            return
        if options["limit"] < 1:
            raise CommandError(f"--limit must be at least 1, got {options['limit']}")
        for entry in found[: options["limit"]]:
            actor = f"{entry.actor_kind}:{entry.actor_name or entry.actor_id}"
            place = entry.address or "-"
            self.stdout.write(
                f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}  {entry.action:20}  "
                f"{entry.object_name or entry.object_id or '-'}  by {actor} from {place}"
            )

    def _export(self, found: QuerySet[AuditEntry], options: dict[str, Any]) -> None:
        name = options["format"]
        audit_export_record(format_name=name, filters={one: str(options[one]) for one in FILTERS if options[one]})
        self.stdout.write(heading(COLUMNS, name).decode(), ending="")
        for page in pages_of(found):
            self.stdout.write(written(page, entry_values, name).decode(), ending="")


def day(text: str) -> date:
    """Read a day. Raises ValueError, of which the parser makes its refusal."""
    found = date.fromisoformat(text)
    if not 2000 <= found.year < 9000:
        raise ValueError(text)
    return found


def _found(options: dict[str, Any]) -> QuerySet[AuditEntry]:
    found = entries_between(AuditEntry.objects.all(), first=options["first"], last=options["last"])
    if options["actor"]:
        found = entries_by(found, options["actor"])
    if options["object"]:
        found = entries_on(found, options["object"])
    return found.filter(action=options["action"]) if options["action"] else found
