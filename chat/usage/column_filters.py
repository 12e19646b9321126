"""Filters of lists by key, project and model. Each is answered by an index."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from chat.access import selectors
from chat.catalog.services import model_names
from chat.console.filters import TableFilter


class ColumnFilter(TableFilter):
    """A filter by equality on one indexed column, whose values are more than those offered."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset

    def shown(self) -> str:
        return super().shown() or self.value() or ""


class ModelFilter(ColumnFilter):
    title = _("model")
    parameter_name = column = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in model_names()]


class KeyFilter(ColumnFilter):
    title = _("API key")
    parameter_name = "key"
    column = "key_public_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return selectors.key_choices(request.user)


class ProjectFilter(ColumnFilter):
    title = _("project")
    parameter_name = "project"
    column = "project_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(pk), name) for pk, name in selectors.project_names(request.user).items()]

    def value(self) -> str | None:
        value = super().value()
        return value if value and value.isascii() and value.isdigit() and len(value) < 19 else None
