"""Audit entries of pages whose rows no service writes: a mixin for them.

A page whose `save_model` calls a service does without it, as services write entries themselves.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values


class AuditedRows:
    """A ModelAdmin that writes rows itself. `audit_kind`: the part of an action before the dot."""

    audit_kind: str

    def audit_subject(self, row: Any) -> Subject:
        return Subject(row.pk, str(row))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Record the changed fields once all is saved, members and the like included; within Django's transaction."""
        super().save_related(request, form, formsets, change)  # type: ignore[misc]  # ModelAdmin has it
        names = [name for name in form.cleaned_data if name in (form.changed_data if change else form.fields)]
        after = {name: _texts(form.cleaned_data[name]) for name in names}
        before = {name: _initial(form, name) for name in names} if change else None
        verb = "change" if change else "create"
        audit_record(
            action=f"{self.audit_kind}.{verb}", on=self.audit_subject(form.instance), before=before, after=after
        )

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._record_deletion(obj)
        super().delete_model(request, obj)  # type: ignore[misc]

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self._record_deletion(row)
        super().delete_queryset(request, queryset)  # type: ignore[misc]

    def _record_deletion(self, row: Any) -> None:
        names = [field.attname for field in row._meta.concrete_fields if not field.primary_key]
        audit_record(action=f"{self.audit_kind}.delete", on=self.audit_subject(row), before=row_values(row, names))


def _initial(form: Any, name: str) -> Any:
    """Return the value of a field before the change; the form holds primary keys of related rows."""
    initial = form.initial.get(name)
    related = getattr(form.fields[name], "queryset", None)
    if related is None or initial is None:
        return _texts(initial)
    keys = initial if isinstance(initial, list) else [initial]
    keys = [one.pk if isinstance(one, Model) else one for one in keys]
    texts = sorted(str(row) for row in related.model.objects.filter(pk__in=keys))
    return texts if isinstance(initial, list) else "".join(texts)


def _texts(value: Any) -> Any:
    """Return rows as their names."""
    if isinstance(value, QuerySet):
        return sorted(str(row) for row in value)
    return str(value) if isinstance(value, Model) else value
