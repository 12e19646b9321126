"""The console's page of the audit log: newest first, with filters, what changed in each act, and exports."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from chat.audit.actions import ACTIONS, KINDS, ActorKind
from chat.audit.export import COLUMNS, audit_export_record, entry_values
from chat.audit.models import AuditEntry
from chat.audit.selectors import entries_between, entries_by, entries_on
from chat.audit.values import Values
from chat.console.export import CONTENT_TYPES, export_response, pages_of
from chat.console.filters import DayFilter, NamedFilter, TableFilter
from chat.console.pages import ReadOnlyNewestFirst

GRAVE = ("delete", "prune", "sign_in_failed", "disable", "revoke", "read", "export", "cancel", "unload")
"""Verbs that an auditor looks for first."""
MAX_NAMED = 3


class ActorFilter(NamedFilter):
    title = _("Who")
    parameter_name = "actor"
    help_text = _("A name, or a kind and an id: user:7, key:ab12cd34.")

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        actor = self.value()
        return entries_by(queryset, actor) if actor else queryset


class ObjectFilter(NamedFilter):
    title = _("What was changed")
    parameter_name = "object"
    help_text = _("A name, or a kind and an id: key:ab12cd34, model:7.")

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        thing = self.value()
        return entries_on(queryset, thing) if thing else queryset


class FirstDayFilter(DayFilter):
    title = _("From day (UTC)")
    parameter_name = "from"

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        return entries_between(queryset, first=self.day(), last=None)


class LastDayFilter(DayFilter):
    title = _("Until day (UTC)")
    parameter_name = "until"

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        return entries_between(queryset, first=None, last=self.day())


class ActionFilter(TableFilter):
    title = _("act")
    parameter_name = column = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(ACTIONS.items())


class KindFilter(TableFilter):
    title = _("kind of object")
    parameter_name = "kind"
    column = "object_kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(KINDS.items())


class AuditPage(ReadOnlyNewestFirst):
    """The page without its scope, which chat/access/admin/audit.py adds as it registers it."""

    list_display = ("show_time", "show_who", "show_action", "show_what")
    list_filter = (ActorFilter, ObjectFilter, ActionFilter, KindFilter, FirstDayFilter, LastDayFilter)
    list_before_template = "admin/chat/auditentry/exports.html"
    change_form_before_template = "admin/chat/auditentry/changes.html"
    fieldsets = (
        (_("Who"), {"fields": ("show_actor", "show_actor_id", "address", "source", "request_id")}),
        (_("What"), {"fields": ("show_object", "show_object_id", "org_id", "project_id")}),
    )

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.export)
        return [path("export.<str:format_name>", view, name="chat_auditentry_export"), *super().get_urls()]

    def export(self, request: HttpRequest, format_name: str) -> HttpResponseBase:
        """Stream the entries that the filters of the query string find."""
        if format_name not in CONTENT_TYPES:
            raise Http404
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            found = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return redirect("admin:chat_auditentry_changelist")
        audit_export_record(format_name=format_name, filters=request.GET.dict())
        return export_response(
            pages_of(found), columns=COLUMNS, values=entry_values, format_name=format_name, name="lightcone-audit"
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        entry = self.get_object(request, object_id)
        shown: dict[str, Any] = {}
        if entry is not None:
            summary = [*self.show_who(entry), f"{self.show_time(entry)} UTC"]
            shown = {"changes": changes_shown(entry.before, entry.after), "summary": " · ".join(filter(None, summary))}
        return super().change_view(request, object_id, form_url, shown | (extra_context or {}))

    @display(description=_("Time (UTC)"))
    def show_time(self, entry: AuditEntry) -> str:
        return f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    @display(description=_("Who"), header=True)
    def show_who(self, entry: AuditEntry) -> list[str]:
        return [self.show_actor(entry), ", ".join(text for text in (entry.address, entry.source) if text)]

    @display(description=_("Act"), label={"grave": "warning", "plain": "default"})
    def show_action(self, entry: AuditEntry) -> tuple[str, str]:
        return "grave" if entry.action.partition(".")[2] in GRAVE else "plain", entry.action_label

    @display(description=_("What"), header=True)
    def show_what(self, entry: AuditEntry) -> list[str]:
        names = [field_label(name) for name in {**entry.before, **entry.after}]
        more = f" +{len(names) - MAX_NAMED}" if len(names) > MAX_NAMED else ""
        return [self.show_object(entry), ", ".join(names[:MAX_NAMED]) + more]

    @display(description=_("Actor"))
    def show_actor(self, entry: AuditEntry) -> str:
        if entry.actor_kind == ActorKind.USER:
            return entry.actor_name
        return f"{entry.actor_label}: {entry.actor_name}" if entry.actor_name else entry.actor_label

    @display(description=_("Its id"))
    def show_actor_id(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind}:{entry.actor_id}" if entry.actor_id else "–"

    @display(description=_("Object"))
    def show_object(self, entry: AuditEntry) -> str:
        name = entry.object_name or entry.object_id
        return f"{entry.kind_label}: {name}" if name else entry.kind_label

    @display(description=_("Its id"))
    def show_object_id(self, entry: AuditEntry) -> str:
        return f"{entry.object_kind}:{entry.object_id}" if entry.object_id else "–"


def changes_shown(before: Values, after: Values) -> list[tuple[str, str, str]]:
    """Return each field with its value before and after, as texts."""
    names = dict.fromkeys([*before, *after])
    return [(field_label(name), value_text(before, name), value_text(after, name)) for name in names]


def field_label(name: str) -> str:
    """Return a field's name in words, which are those of its column where it is one."""
    return gettext(name.removesuffix("_id").replace("_", " "))


def value_text(values: Values, name: str) -> str:
    """Return a value as people read it: a list by lines, an object as JSON, nothing as a dash."""
    value = values.get(name)
    if value in (None, "", [], {}):
        return "–"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
