"""Forms that tell the second of two people who change a row at once, instead of undoing what the first has done."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django import forms
from django.db.models import Model
from django.forms.models import model_to_dict
from django.http import HttpRequest
from django.utils.translation import gettext as _

FRESH = "fresh"
TOKEN_CHARS = 32


class FreshForm(forms.ModelForm):
    """A form that carries a digest of the row as it was shown, and refuses to save over another one.

    It needs no column: the digest is made of the stored values of the form's fields, members and the like included.
    """

    fresh = forms.CharField(label="", required=False, widget=forms.HiddenInput, max_length=TOKEN_CHARS)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if FRESH in self.fields:
            self.initial[FRESH] = row_digest(self.instance, self._meta.fields)

    def clean(self) -> dict[str, Any]:
        """Refuse a row that somebody has changed since it was shown, or deleted."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        shown = cleaned.pop(FRESH, "")
        if self.instance.pk is None or not shown:
            return cleaned
        rows = type(self.instance)._base_manager.select_for_update()
        stored = rows.filter(pk=self.instance.pk).first()
        if stored is None:
            raise forms.ValidationError(_("Somebody has deleted this meanwhile; nothing was saved."))
        if row_digest(stored, self._meta.fields) != shown:
            raise forms.ValidationError(
                _(
                    "Somebody else has changed this since you opened it; nothing was saved. "
                    "Open it again to see their changes, then make yours."
                )
            )
        return cleaned


class FreshPage:
    """A page of a table whose form is a FreshForm: it shows the hidden field with the first ones."""

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.with_fresh(request, obj, super().get_fieldsets(request, obj))  # type: ignore[misc]  # ModelAdmin has it

    def with_fresh(self, request: HttpRequest, obj: Any, fieldsets: Any) -> Any:
        """Return groups of fields with the hidden one, if the user may change the row."""
        if obj is None or not self.has_change_permission(request, obj):  # type: ignore[attr-defined]
            return fieldsets
        (name, options), *others = fieldsets
        return ((name, {**options, "fields": (*options["fields"], FRESH)}), *others)


def row_digest(row: Any, names: Any) -> str:
    """Return a digest of the stored values of a row's fields."""
    if row.pk is None:
        return ""
    values = {name: _plain(value) for name, value in model_to_dict(row, fields=names).items()}
    text = json.dumps(values, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:TOKEN_CHARS]


def _plain(value: Any) -> Any:
    """Return rows of a field with many as their keys, in order."""
    is_rows = isinstance(value, list) and all(isinstance(one, Model) for one in value)
    return sorted(one.pk for one in value) if is_rows else value
