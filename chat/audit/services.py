"""Write the audit log: an entry in the transaction of its act, and the removal of entries beyond retention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import CharField, QuerySet
from django.utils import timezone

from chat.audit.actions import ACTIONS
from chat.audit.models import AuditEntry
from chat.audit.origin import Origin, origin
from chat.audit.triggers import LEAST_DAYS
from chat.audit.values import Values, differing, line_stored, masked

PRUNED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Subject:
    """What an act is done to. Its kind is that of the action."""

    id: str | int = ""
    name: str = ""
    org_id: int = 0
    """0: the installation."""
    project_id: int = 0


def audit_record(
    *,
    action: str,
    on: Subject,
    before: Values | None = None,
    after: Values | None = None,
    by: Origin | None = None,
) -> None:
    """Add an entry. Call it in the transaction of the act, so that both are stored or neither.

    `before` and `after`: fields of the object, of which those that differ are stored. Where both are given and none
    differs nothing has happened, and nothing is added. `by`: who acts, if not whoever has sent the request.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is no action of chat/audit/actions.py")
    if before is not None and after is not None and before == after:
        return
    old, new = differing(before or {}, after or {})
    who = by or origin()
    texts = {
        "actor_id": who.id,
        "actor_name": who.name,
        "address": who.address,
        "source": who.source,
        "request_id": who.request_id,
        "object_id": on.id,
        "object_name": on.name,
    }
    AuditEntry.objects.create(
        actor_kind=who.kind,
        action=action,
        object_kind=action.partition(".")[0],
        org_id=on.org_id,
        project_id=on.project_id,
        before=masked(old),
        after=masked(new),
        **{name: line_stored(str(text))[: _LENGTHS[name]] for name, text in texts.items()},
    )


_LENGTHS = {item.name: item.max_length for item in AuditEntry._meta.get_fields() if isinstance(item, CharField)}


def audit_prune(*, before: datetime, at_once: int = PRUNED_AT_ONCE) -> int:
    """Delete entries from before an instant, a transaction for some, and return their number.

    Those younger than a year stay in any case.
    """
    until = min(before, timezone.now() - timedelta(days=LEAST_DAYS, minutes=1))
    # NOTE: the manager of entries deletes none.
    entries: QuerySet[Any] = QuerySet(AuditEntry)
    num_deleted = 0
    while pks := list(entries.filter(at__lt=until).order_by("at").values_list("pk", flat=True)[:at_once]):
        num_deleted += entries.filter(pk__in=pks).delete()[0]
    if num_deleted:
        audit_record(action="audit.prune", on=Subject(), after={"from_before": until, "number": num_deleted})
    return num_deleted
