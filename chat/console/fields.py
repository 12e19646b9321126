"""Form fields and cell texts that several console pages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.utils import timezone
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextareaWidget


class LinesField(forms.CharField):
    """A form field for a list of texts, one per line, without empty lines."""

    widget = UnfoldAdminTextareaWidget

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "max_length": 20_000, **options})
        self.widget.attrs["rows"] = 3

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        return [line.strip() for line in super().to_python(value).splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return list(initial or []) != self.to_python(data)


def column(description: str, field: str, text: Callable[[Any], str]) -> Callable[[Any, Any], str]:
    """Return the method of a page that shows one field of a row as `text` formats it."""

    @display(description=description)
    def show(page: Any, row: Any) -> str:
        return text(getattr(row, field))

    return show


def number(value: int) -> str:
    return f"{value:,}"


def milliseconds(value: float | None) -> str:
    """Format milliseconds as `850 ms`, `1.24 s`, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f} ms" if value < 1000 else f"{value / 1000:,.2f} s"


def instant(value: Any) -> str:
    """Format an instant as `2026-01-31 12:00:05 UTC`, or a dash."""
    return f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S %Z}" if value else "–"


def expiry(value: Any) -> str:
    return instant(value) if value else "never"
