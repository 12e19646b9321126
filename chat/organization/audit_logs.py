"""The route of the audit log. Acts have OpenAI's names where there is one, and our own otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from chat.access.models import AdminKey, ApiKey, Membership, Project
from chat.access.roles import Act
from chat.api.queries import MAX_LIMIT, integer_check, list_object, query_integer
from chat.api.request.fields import bad_value, echo
from chat.audit.actions import ACTIONS, KINDS, ActorKind
from chat.audit.models import AuditEntry
from chat.audit.selectors import entries_within
from chat.organization.frame import (
    INVITE,
    KEY,
    PROJECT,
    SERVICE_ACCOUNT,
    USER,
    Asked,
    Does,
    admin_view,
    id_read,
    unix_seconds,
)

ENTRY = "audit_log-"
MAX_VALUES = 50
MAX_TIME = 2**33
EVENTS = {
    "key.create": "api_key.created",
    "key.change": "api_key.updated",
    "key.delete": "api_key.deleted",
    "invite.create": "invite.sent",
    "invite.accept": "invite.accepted",
    "invite.revoke": "invite.deleted",
    "user.sign_in": "login.succeeded",
    "user.sign_in_failed": "login.failed",
    "user.sign_out": "logout.succeeded",
    "org.change": "organization.updated",
    "project.create": "project.created",
    "project.change": "project.updated",
    "project.archive": "project.archived",
    "project.delete": "project.deleted",
    "service_account.create": "service_account.created",
    "service_account.change": "service_account.updated",
    "service_account.delete": "service_account.deleted",
    "member.create": "user.added",
    "member.change": "user.updated",
    "member.delete": "user.deleted",
}
"""OpenAI's name of an act."""
ACTS = {event: action for action, event in EVENTS.items()}
EVENT = re.compile(r"[a-z_]+(\.[a-z_]+)+", re.ASCII)
RESOURCES = {
    PROJECT: ("project",),
    USER: ("user", "member"),
    SERVICE_ACCOUNT: ("service_account",),
    INVITE: ("invite",),
}
"""The kinds of objects whose ids begin so."""
PREFIXES = {kind: prefix for prefix, kinds in RESOURCES.items() for kind in kinds} | {"key": KEY, "admin_key": KEY}
KEYS = (str(ActorKind.KEY), str(ActorKind.ADMIN_KEY))
TIMES = ("gt", "gte", "lt", "lte")


def logs_list(asked: Asked) -> dict[str, Any]:
    """Return a page, the newest entry first. `before` asks for the page of newer ones."""
    sent = asked.request.GET
    limit = query_integer(asked.request, "limit", 20, minimum=1, maximum=MAX_LIMIT)
    rows = _filtered(asked)
    older, newer = (_entry_id(name, sent.get(name, "")) for name in ("after", "before"))
    if older is not None:
        rows = rows.filter(pk__lt=older)
    if newer is not None:
        rows = rows.filter(pk__gt=newer)
    is_backwards = newer is not None and older is None
    found = list(rows.order_by("pk" if is_backwards else "-pk")[: limit + 1])
    shown = found[:limit][::-1] if is_backwards else found[:limit]
    return list_object(entries_described(shown), has_more=len(found) > limit)


def _entry_id(name: str, text: str) -> int | None:
    found = id_read(ENTRY, text) if text else None
    if text and found is None:
        raise bad_value(name, f"must be the id of an entry of this list ({ENTRY}…), got {echo(text)}")
    return found


def _filtered(asked: Asked) -> Any:
    """Return the entries of the organisation, of the installation too if it is the one that operates it."""
    orgs = [asked.org.pk, 0] if asked.org.is_operator else [asked.org.pk]
    rows = entries_within(AuditEntry.objects.filter(org_id__in=orgs), **_times(asked))
    if projects := _texts(asked, "project_ids"):
        rows = rows.filter(project_id__in=[_id("project_ids", PROJECT, text) for text in projects])
    if events := _texts(asked, "event_types"):
        rows = rows.filter(action__in=[_action(event) for event in events])
    if actors := _texts(asked, "actor_ids"):
        rows = rows.filter(_any(_actor(asked, text) for text in actors))
    if emails := _texts(asked, "actor_emails"):
        rows = rows.filter(actor_kind=ActorKind.USER, actor_id__in=_people(asked, emails))
    if resources := _texts(asked, "resource_ids"):
        rows = rows.filter(_any(_resource(text) for text in resources))
    return rows


def _texts(asked: Asked, name: str) -> list[str]:
    texts = asked.texts(name)
    if len(texts) > MAX_VALUES:
        raise bad_value(name, f"must have at most {MAX_VALUES} values, got {len(texts)}")
    return texts


def _times(asked: Asked) -> dict[str, datetime | None]:
    """Return the bounds: instants are kept finer than the whole seconds that are shown and asked for."""
    found: dict[str, datetime] = {}
    for name in TIMES:
        param = f"effective_at[{name}]"
        if (text := asked.request.GET.get(param)) is not None:
            seconds = integer_check(param, text, minimum=0, maximum=MAX_TIME)
            found[name] = datetime.fromtimestamp(seconds, UTC)
    second = timedelta(seconds=1)
    starts = [found[name] + step for name, step in (("gte", 0 * second), ("gt", second)) if name in found]
    ends = [found[name] + step for name, step in (("lt", 0 * second), ("lte", second)) if name in found]
    return {"start": max(starts, default=None), "end": min(ends, default=None)}


def _action(event: str) -> str:
    """Return the act of an event by OpenAI's name or by ours. An event that never happens here finds nothing."""
    if EVENT.fullmatch(event) is None:
        known = ", ".join([*sorted(ACTS)[:3], *sorted(ACTIONS)[:3]])
        raise bad_value("event_types", f"must be names of events such as {known}, got {echo(event)}")
    return ACTS.get(event, event)


def _actor(asked: Asked, text: str) -> Q:
    if text.startswith(KEY):
        return Q(actor_kind__in=KEYS, actor_id=text.removeprefix(KEY))
    if (program := id_read(SERVICE_ACCOUNT, text)) is not None:
        keys = ApiKey.objects.filter(service_account=program, project__org=asked.org)
        return Q(actor_kind=ActorKind.KEY, actor_id__in=list(keys.values_list("public_id", flat=True)))
    return Q(actor_kind=ActorKind.USER, actor_id=str(_id("actor_ids", USER, text)))


def _people(asked: Asked, emails: list[str]) -> list[str]:
    chosen = _any(Q(user__email__iexact=email) for email in emails)
    people = Membership.objects.filter(chosen, org=asked.org)
    return [str(user_id) for user_id in people.values_list("user_id", flat=True)]


def _resource(text: str) -> Q:
    """Return the condition of an object: by an id of these routes, or by kind and id, such as `budget:7`."""
    if text.startswith(KEY):
        return Q(object_kind__in=("key", "admin_key"), object_id=text.removeprefix(KEY))
    for prefix, kinds in RESOURCES.items():
        if (number := id_read(prefix, text)) is not None:
            return Q(object_kind__in=kinds, object_id=str(number))
    kind, colon, number_text = text.partition(":")
    if not colon or kind not in KINDS:
        raise bad_value("resource_ids", f"must be ids as lists give them, or KIND:ID, got {echo(text)}")
    return Q(object_kind=kind, object_id=number_text)


def _id(name: str, prefix: str, text: str) -> int:
    found = id_read(prefix, text)
    if found is None:
        raise bad_value(name, f"must be ids as lists give them ({prefix}…), got {echo(text)}")
    return found


def _any(conditions: Iterable[Q]) -> Q:
    found = Q(pk__in=())
    for condition in conditions:
        found |= condition
    return found


# Entries.


def entries_described(entries: list[AuditEntry]) -> list[dict[str, Any]]:
    """Describe entries, with what their actors and projects are called now, in a query for each kind."""
    ids: dict[str, set[str]] = {kind: set() for kind in (ActorKind.USER, *KEYS)}
    for entry in entries:
        ids.get(entry.actor_kind, set()).add(entry.actor_id)
    rows: Any = ApiKey.objects.filter(public_id__in=ids[ActorKind.KEY])
    owners = {
        key: (owner, program) for key, owner, program in rows.values_list("public_id", "owner", "service_account")
    }
    rows = AdminKey.objects.filter(public_id__in=ids[ActorKind.ADMIN_KEY])
    owners |= {key: (owner, None) for key, owner in rows.values_list("public_id", "owner")}
    people = {int(one) for one in ids[ActorKind.USER] if one.isdigit()} | {
        owner for owner, _ in owners.values() if owner
    }
    emails = dict(User.objects.filter(pk__in=people).values_list("pk", "email"))
    projects = {entry.project_id for entry in entries if entry.project_id}
    names = dict(Project.objects.filter(pk__in=projects).values_list("pk", "name"))
    return [_described(entry, owners, emails, names) for entry in entries]


def _described(
    entry: AuditEntry, owners: Mapping[str, Any], emails: Mapping[int, str], names: Mapping[int, str]
) -> dict[str, Any]:
    event = EVENTS.get(entry.action, entry.action)
    is_new = event.endswith((".created", ".sent", ".added", ".create"))
    details = {
        "id": f"{PREFIXES.get(entry.object_kind, '')}{entry.object_id}",
        "name": entry.object_name,
        "data" if is_new else "changes_requested": entry.after,
        "before": entry.before,
    }
    project = {"project": {"id": f"{PROJECT}{entry.project_id}", "name": names.get(entry.project_id)}}
    return {
        "id": f"{ENTRY}{entry.pk}",
        "object": "organization.audit_log",
        "type": event,
        "effective_at": unix_seconds(entry.at),
        "actor": _actor_object(entry, owners, emails),
        event: details,
        **(project if entry.project_id else {}),
    }


def _actor_object(entry: AuditEntry, owners: Mapping[str, Any], emails: Mapping[int, str]) -> dict[str, Any]:
    """Return who acted. OpenAI knows people and keys; for commands and the server `type` is null."""
    place = {"ip_address": entry.address, "source": entry.source, "request_id": entry.request_id}
    named = {"name": entry.actor_name, "kind": entry.actor_kind}
    if entry.actor_kind == ActorKind.USER:
        number = int(entry.actor_id)
        return named | {"type": "session", "session": {"user": _person(number, emails), **place}}
    if entry.actor_kind in KEYS:
        owner, program = owners.get(entry.actor_id, (None, None))
        key: dict[str, Any] = {"id": f"{KEY}{entry.actor_id}", "type": None}
        if program is not None:
            key |= {"type": "service_account", "service_account": {"id": f"{SERVICE_ACCOUNT}{program}"}}
        elif owner is not None:
            key |= {"type": "user", "user": _person(owner, emails)}
        return named | {"type": "api_key", "api_key": {**key, **place}}
    return named | {"type": None, **place}


def _person(number: int, emails: Mapping[int, str]) -> dict[str, Any]:
    return {"id": f"{USER}{number}", "email": emails.get(number)}


audit_logs = admin_view(
    get=Does(
        logs_list,
        Act.AUDIT_SEE,
        query=(
            *("after", "before", "limit", "project_ids", "event_types", "actor_ids", "actor_emails", "resource_ids"),
            *(f"effective_at[{name}]" for name in TIMES),
        ),
    )
)
