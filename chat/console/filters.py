"""Filters of console lists: a text, a number, an instant, one of a table. Each is a part of the query string.

A filter says what is set (`shown`), for its chip, and what is wrong with it (`problem`); a wrong one filters nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from chat.console import figures

MAX_NUMBER = 10**9


class FieldForm(forms.Form):
    """A form of one field, as the filters of django-unfold want it."""

    def __init__(self, name: str, field: forms.Field, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields[name] = field


class NamedFilter(TextFilter):
    """A filter by an exact text."""

    help_text: Any = ""
    input_type = "text"

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        widget = UnfoldAdminTextInputWidget(attrs={"type": self.input_type})
        field = forms.CharField(label=self.title, required=False, help_text=self.help_text, widget=widget)
        yield {"form": FieldForm(self.parameter_name, field, data={self.parameter_name: self.value()})}

    def value(self) -> str | None:
        value = super().value()
        return None if value is None or "\0" in value else value.strip()

    def shown(self) -> str:
        return self.value() or ""

    def problem(self) -> str:
        return ""


class DayFilter(NamedFilter):
    input_type = "date"

    def day(self) -> date | None:
        """Return the chosen day; None for none, and for what is no day of this time."""
        try:
            day = date.fromisoformat(self.value() or "")
        except ValueError:
            return None
        return day if 2000 <= day.year < 9000 else None


class InstantFilter(NamedFilter):
    """A filter by an instant in UTC: a day, or a day and a time."""

    input_type = "datetime-local"

    def instant(self) -> datetime | None:
        """Return the chosen instant; None for none, and for what is none of this time."""
        try:
            found = datetime.fromisoformat(self.value() or "")
            found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return found if 2000 <= found.year < 9000 else None

    def shown(self) -> str:
        found = self.instant()
        return f"{found:%Y-%m-%d %H:%M}" if found else ""

    def problem(self) -> str:
        if not self.value() or self.instant():
            return ""
        return _("%(field)s: %(value)s is no time; write one such as 2026-01-31T12:00.") % {
            "field": self.title,
            "value": repr((self.value() or "")[:40]),
        }


class NumberFilter(NamedFilter):
    """A filter by a whole number."""

    input_type = "number"
    unit = ""

    def number(self) -> int | None:
        """Return the chosen number; None for none, and for what is no whole number from 0 on."""
        value = self.value() or ""
        is_number = value.isascii() and value.isdigit() and len(value) <= len(str(MAX_NUMBER))
        return int(value) if is_number and int(value) <= MAX_NUMBER else None

    def shown(self) -> str:
        number = self.number()
        return "" if number is None else f"{figures.number(number)} {self.unit}".strip()

    def problem(self) -> str:
        if not self.value() or self.number() is not None:
            return ""
        return _("%(field)s: %(value)s is no whole number from 0 to %(most)s.") % {
            "field": self.title,
            "value": repr((self.value() or "")[:40]),
            "most": figures.number(MAX_NUMBER),
        }


class TableFilter(DropdownFilter):
    """A filter by one of a table of texts."""

    column = ""

    def has_output(self) -> bool:
        return True

    def value(self) -> str | None:
        value = super().value()
        return None if value is None or "\0" in value else value

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.shown() else queryset

    def shown(self) -> str:
        """Return the label of what is chosen, empty for nothing and for what is not in the table."""
        return str({str(value): label for value, label in self.lookup_choices}.get(self.value() or "", ""))

    def problem(self) -> str:
        return ""
