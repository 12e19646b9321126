"""Console pages of served models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.widgets import UnfoldBooleanWidget

from chat.access.checks import check_object
from chat.catalog.models import ServedModel
from chat.catalog.services import model_delete, model_names_check, model_path_check, model_update
from chat.console.pages import LinesField, instant
from chat.errors import ApiError


class ServedModelForm(forms.ModelForm):
    """The form of a model. `read_sampling_defaults` checks defaults by the request schema; `chat.admin` sets it."""

    read_sampling_defaults: Callable[[dict[str, Any]], dict[str, Any]]

    aliases = LinesField(help_text="Further names that clients may ask for, one a line.")
    is_elsewhere = forms.BooleanField(
        label="On another machine",
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="The path is one of the worker's machine: do not look for the model on this one.",
    )

    class Meta:
        model = ServedModel
        fields = (
            *("name", "aliases", "path", "owned_by", "enabled", "is_default", "max_model_len", "sampling_defaults"),
            *("pinned", "idle_s"),
            *("input_price", "cached_price", "output_price"),
        )
        help_texts = {
            "name": "The name that clients ask for, and that its workers serve (LIGHTCONE_MODEL_NAME).",
            "path": "A GGUF file or a Hugging Face folder, from / on.",
            "is_default": "Serve this model where a request names none. Takes it from the one before.",
            "max_model_len": "Tokens to serve, from the next load on. Empty: what the model was made for, "
            "as far as the cache holds it.",
            "pinned": "Load it when its worker starts, and never unload it for another model.",
            "idle_s": "Seconds without a request after which it is unloaded; 0: never. "
            "Empty: the setting LIGHTCONE_MODEL_IDLE.",
            "input_price": "Of a million prompt tokens, in the currency of LIGHTCONE_CURRENCY. Empty: nothing.",
            "cached_price": "Of a million prompt tokens that were in the cache. Empty: as much as the others.",
            "output_price": "Of a million generated tokens. Empty: nothing. "
            "Changes hold for requests that end from then on.",
            "sampling_defaults": "Request fields for requests that leave them out, as a JSON object; "
            "stronger than the model's files.",
        }

    def _get_validation_exclusions(self) -> set[str]:
        # Saving moves the default from the previous model, so two defaults are no error before that.
        return super()._get_validation_exclusions() | {"is_default"}

    def clean_sampling_defaults(self) -> dict[str, Any]:
        value = self.cleaned_data["sampling_defaults"]
        check_object({} if value is None else value)
        try:
            return self.read_sampling_defaults(value or {})
        except ApiError as error:
            raise ValidationError(error.message) from error

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if "path" in self.changed_data and cleaned.get("path") and not cleaned.get("is_elsewhere"):
            try:
                model_path_check(path=cleaned["path"])
            except ValidationError as error:
                hint = "Tick “On another machine” if the worker that serves it has it elsewhere."
                self.add_error("path", [*error.messages, hint])
        names = (cleaned.get("name", ""), *cleaned.get("aliases", []))
        try:
            model_names_check(names=names, own_pk=self.instance.pk)
        except ValidationError as error:
            self.add_error(None, error)
        return cleaned


@admin.register(ServedModel)
class ServedModelAdmin(ModelAdmin):
    form = ServedModelForm
    list_display = ("name", "show_state", "enabled", "is_default", "show_length", "path")
    search_fields = ("name",)
    actions = None
    readonly_fields = ("show_state", "state_reason", "show_state_at", "show_computed_by", "show_maker_defaults")
    fieldsets = (
        (None, {"fields": ("name", "aliases", "path", "is_elsewhere", "owned_by", "enabled", "is_default")}),
        ("Loading", {"fields": ("pinned", "idle_s", "max_model_len")}),
        ("Defaults", {"fields": ("sampling_defaults",)}),
        ("Prices", {"fields": ("input_price", "cached_price", "output_price")}),
        ("What the workers report", {"fields": readonly_fields}),
    )

    @display(
        description="State",
        label={"Ready": "success", "Loading": "info", "Draining": "warning", "Unloaded": "warning", "Failed": "danger"},
    )
    def show_state(self, model: ServedModel) -> str:
        return model.get_state_display()

    @display(description="Computed by")
    def show_computed_by(self, model: ServedModel) -> str:
        return model.computed_by or "–"

    @display(description="Defaults in the model's files")
    def show_maker_defaults(self, model: ServedModel) -> str:
        return ", ".join(f"{name} {value}" for name, value in model.maker_defaults.items()) or "none"

    @display(description="Since")
    def show_state_at(self, model: ServedModel) -> str:
        return instant(model.state_at)

    @display(description="Context")
    def show_length(self, model: ServedModel) -> str:
        context = model.loaded_context or model.max_model_len
        return f"{context:,}" if context else "–"

    def save_model(self, request: HttpRequest, obj: ServedModel, form: Any, change: bool) -> None:
        model_update(model=obj)

    def delete_model(self, request: HttpRequest, obj: ServedModel) -> None:
        model_delete(model=obj)
