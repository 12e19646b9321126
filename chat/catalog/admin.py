"""Console pages of served models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html_join, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldBooleanWidget

from chat.access.admin.limit_fields import RATE_LIMITS, LimitFields
from chat.access.checks import check_object
from chat.access.limit_columns import RATE_COLUMNS
from chat.catalog.acts import model_load, model_pin, model_restart, model_unload, model_unpin
from chat.catalog.adapters import adapter_check, adapter_delete, adapter_save
from chat.catalog.models import ModelAdapter, ModelState, ServedModel, WeightedAlias
from chat.catalog.removal import model_remove
from chat.catalog.services import (
    fallback_check,
    model_names_check,
    model_path_check,
    model_update,
    transcriber_check,
)
from chat.catalog.stored_models import stored_manifest
from chat.catalog.weighted_aliases import name_check as alias_name_check
from chat.catalog.weighted_aliases import targets_check, weighted_alias_delete, weighted_alias_set
from chat.console.acts import confirm_page
from chat.console.figures import gigabytes, number
from chat.console.fresh_form import FreshForm, FreshPage
from chat.console.pages import Labelled, LinesField, column, instant
from chat.errors import ApiError
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import Manifest

REASON_CHARS = 80


@dataclass(frozen=True, slots=True)
class ModelAct:
    """An act on a model: how the history names it, how pages do, what it does, and what is said once it is done."""

    noted: str
    name: Any
    effect: Any
    done: Any


LOAD = ModelAct(
    "Load",
    gettext_lazy("Load"),
    gettext_lazy("A worker that has its files and room loads it, as for a request."),
    gettext_lazy("%(model)s: asked the workers to load it."),
)
UNLOAD = ModelAct(
    "Unload",
    gettext_lazy("Unload"),
    gettext_lazy("Its running requests end undisturbed. The next request loads it again; a pinned model stays."),
    gettext_lazy("%(model)s: asked the workers to unload it."),
)
RESTART = ModelAct(
    "Restart",
    gettext_lazy("Restart"),
    gettext_lazy("Its running requests end undisturbed and new ones wait; it is loaded anew, as it is set now."),
    gettext_lazy("%(model)s: asked the workers to restart it."),
)
PIN = ModelAct(
    "Pin",
    gettext_lazy("Pin"),
    gettext_lazy("A worker that has its files loads it, and never unloads it for another model or as it is idle."),
    gettext_lazy("%(model)s is pinned."),
)
UNPIN = ModelAct(
    "Unpin",
    gettext_lazy("Unpin"),
    gettext_lazy("It stays loaded until it has been idle for its time, or another model needs its memory."),
    gettext_lazy("%(model)s is no longer pinned."),
)


class ServedModelForm(FreshForm, LimitFields):
    """The form of a model. `read_sampling_defaults` checks defaults by the request schema; `chat.admin` sets it."""

    read_sampling_defaults: Callable[[dict[str, Any]], dict[str, Any]]

    aliases = LinesField(
        label=gettext_lazy("Aliases"), help_text=gettext_lazy("Further names that clients may ask for, one a line.")
    )
    is_elsewhere = forms.BooleanField(
        label=gettext_lazy("On another machine"),
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=gettext_lazy("The path is one of the worker's machine: do not look for the model on this one."),
    )

    class Meta:
        model = ServedModel
        fields = (
            *("name", "aliases", "path", "owned_by", "enabled", "is_default", "max_model_len", "sampling_defaults"),
            *("system_prompt", "chat_template", "pinned", "idle_s", "fallback", "transcriber", "deprecated_at"),
            *RATE_COLUMNS,
        )
        labels = {
            "is_default": gettext_lazy("Default"),
            "idle_s": gettext_lazy("Idle time"),
            "max_model_len": gettext_lazy("Context"),
        }
        help_texts = {
            "name": gettext_lazy("The name that clients ask for, and that its workers serve (LIGHTCONE_MODEL_NAME)."),
            "path": gettext_lazy("A GGUF file or a Hugging Face folder, from / on."),
            "is_default": gettext_lazy("Serve this model where a request names none. Takes it from the one before."),
            "max_model_len": gettext_lazy(
                "Tokens to serve, from the next load on. Empty: what the model was made for, as far as the "
                "cache holds it."
            ),
            "pinned": gettext_lazy("Load it when its worker starts, and never unload it for another model."),
            "idle_s": gettext_lazy(
                "Seconds without a request after which it is unloaded; 0: never. Empty: the setting "
                "LIGHTCONE_MODEL_IDLE."
            ),
            "sampling_defaults": gettext_lazy(
                "Request fields for requests that leave them out, as a JSON object; stronger than the model's files."
            ),
            "fallback": gettext_lazy(
                "The model that answers while this one has no worker, cannot be loaded or has a full queue. "
                "The answer's head says so."
            ),
            "transcriber": gettext_lazy(
                "The model that writes down sound in messages to this one, which then reads it as text. Callers need "
                "both. Empty: messages have no sound."
            ),
            "deprecated_at": gettext_lazy(
                "Answers say from when on the model is deprecated, also before (the header Deprecation)."
            ),
            "chat_template": gettext_lazy("A Jinja template in place of the one in the model's files."),
            "system_prompt": gettext_lazy(
                "What the model is told first in conversations that bring no system message of their own."
            ),
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
                hint = _("Tick “On another machine” if the worker that serves it has it elsewhere.")
                self.add_error("path", [*error.messages, hint])
        names = (cleaned.get("name", ""), *cleaned.get("aliases", []))
        self.instance.name, self.instance.fallback = cleaned.get("name", ""), cleaned.get("fallback", "")
        self.instance.transcriber = cleaned.get("transcriber", "")
        try:
            fallback_check(model=self.instance)
            transcriber_check(model=self.instance)
            model_names_check(names=names, own_pk=self.instance.pk)
        except ValidationError as error:
            self.add_error(None, error)
        return cleaned


@admin.register(ServedModel)
class ServedModelAdmin(FreshPage, ModelAdmin):
    form = ServedModelForm
    list_display = ("name", "show_state", "show_reason", "enabled", "is_default", "pinned", "show_length", "show_size")
    list_before_template = "admin/live/models.html"
    search_fields = ("name",)
    actions = None
    actions_list = ("pull",)
    change_form_before_template = "admin/live/model.html"
    actions_detail = ("load", "unload", "restart", "warm", "pin", "unpin")
    readonly_fields = ("show_state", "state_reason", "show_state_at", "show_computed_by", "show_maker_defaults")
    stored_fields = ("show_format", "show_size", "show_source", "show_licence", "show_stored_at", "show_files")
    fieldsets = (
        (None, {"fields": ("name", "aliases", "path", "is_elsewhere", "owned_by", "enabled", "is_default")}),
        (gettext_lazy("Going over to another model"), {"fields": ("fallback", "deprecated_at")}),
        (gettext_lazy("Loading"), {"fields": ("pinned", "idle_s", "max_model_len")}),
        (gettext_lazy("Defaults"), {"fields": ("sampling_defaults", "system_prompt", "chat_template", "transcriber")}),
        RATE_LIMITS,
        (gettext_lazy("What the workers report"), {"fields": readonly_fields}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: ServedModel | None = None) -> tuple[str, ...]:
        return (*self.readonly_fields, *self.stored_fields)

    def get_fieldsets(self, request: HttpRequest, obj: ServedModel | None = None) -> Any:
        """Return the groups of fields; a stored model has one more."""
        groups: Any = super().get_fieldsets(request, obj)
        if obj is None or _manifest(obj) is None:
            return groups
        return (*groups, (_("Stored files"), {"fields": self.stored_fields}))

    def has_act_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("chat.change_servedmodel"))

    def has_pull_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("chat.add_modeljob"))

    @action(description=gettext_lazy("Pull or import a model"), url_path="pull", permissions=["pull"], icon="download")
    def pull(self, request: HttpRequest) -> HttpResponse:
        return redirect("admin:chat_modeljob_add")

    @action(description=LOAD.name, url_path="load", permissions=["act"], icon="play_arrow")
    def load(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act(request, object_id, LOAD, model_load)

    @action(
        description=UNLOAD.name, url_path="unload", permissions=["act"], icon="eject", variant=ActionVariant.WARNING
    )
    def unload(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act(request, object_id, UNLOAD, model_unload)

    @action(description=RESTART.name, url_path="restart", permissions=["act"], icon="restart_alt")
    def restart(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act(request, object_id, RESTART, model_restart)

    @action(description=PIN.name, url_path="pin", permissions=["act"], icon="keep")
    def pin(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act(request, object_id, PIN, model_pin)

    @action(description=UNPIN.name, url_path="unpin", permissions=["act"], icon="keep_off")
    def unpin(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act(request, object_id, UNPIN, model_unpin)

    @action(description=gettext_lazy("Warm up"), url_path="warm", permissions=["act"], icon="local_fire_department")
    def warm(self, request: HttpRequest, object_id: str) -> HttpResponse:
        model = self.get_object(request, unquote(object_id))
        if model is None:
            raise Http404("There is no such model.")
        return redirect("admin:model_warm", model.pk)

    def _act(self, request: HttpRequest, object_id: str, act: ModelAct, ask: Callable[..., None]) -> HttpResponse:
        """Confirm an act on a model, then ask the workers for it."""
        model = self.get_object(request, unquote(object_id))
        if model is None:
            raise Http404("There is no such model.")
        if not self.has_act_permission(request):
            raise PermissionDenied
        place = reverse("admin:chat_servedmodel_change", args=[model.pk])
        if request.method != "POST":
            return confirm_page(request, act=str(act.name), subject=model.name, effect=str(act.effect), back=place)
        if act is UNLOAD and model.pinned:
            said = _("%(model)s is pinned: change that first.") % {"model": model.name}
            self.message_user(request, said, messages.WARNING)
            return redirect(place)
        try:
            ask(name=model.name)
        except ValidationError as error:
            values = {"act": act.name, "model": model.name, "problem": " ".join(error.messages)}
            self.message_user(request, _("%(act)s %(model)s: %(problem)s") % values, messages.ERROR)
            return redirect(place)
        except Exception as error:
            # Any error of Valkey's or the broker's client.
            said = _("The workers cannot be reached: %(why)s") % {"why": error}
            self.message_user(request, said, messages.ERROR)
            return redirect(place)
        self.log_change(request, model, f"{act.noted}.")
        self.message_user(request, act.done % {"model": model.name})
        return redirect(place)

    @display(
        description=gettext_lazy("State"),
        label={
            ModelState.UNLOADED: None,
            ModelState.LOADING: "info",
            ModelState.READY: "success",
            ModelState.DRAINING: "warning",
            ModelState.FAILED: "danger",
        },
    )
    def show_state(self, model: ServedModel) -> Labelled:
        return Labelled(model.state, ModelState(model.state).label)

    @display(description=gettext_lazy("Why"))
    def show_reason(self, model: ServedModel) -> str:
        return Truncator(model.state_reason).chars(REASON_CHARS)

    @display(description=gettext_lazy("Format"))
    def show_format(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        return "–" if manifest is None else f"{manifest.description.architecture}, {manifest.description.format}"

    @display(description=gettext_lazy("Size"))
    def show_size(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        return "–" if manifest is None else gigabytes(manifest.num_bytes)

    @display(description=gettext_lazy("Source"))
    def show_source(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        return "–" if manifest is None else manifest.source_text

    @display(description=gettext_lazy("Licence"))
    def show_licence(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        return (manifest.description.licence if manifest is not None else "") or _("not said")

    @display(description=gettext_lazy("Stored"))
    def show_stored_at(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        return "–" if manifest is None else instant(datetime.fromisoformat(manifest.created_at))

    @display(description=gettext_lazy("Files"))
    def show_files(self, model: ServedModel) -> str:
        manifest = _manifest(model)
        files = manifest.files if manifest is not None else ()
        lines = ((file.path, number(file.num_bytes), file.sha256) for file in files)
        return format_html_join(mark_safe("<br>"), _("{}, {} bytes, SHA-256 {}"), lines) or "–"

    @display(description=gettext_lazy("Computed by"))
    def show_computed_by(self, model: ServedModel) -> str:
        return model.computed_by or "–"

    @display(description=gettext_lazy("Defaults in the model's files"))
    def show_maker_defaults(self, model: ServedModel) -> str:
        return ", ".join(f"{name} {value}" for name, value in model.maker_defaults.items()) or _("none")

    @display(description=gettext_lazy("Since"))
    def show_state_at(self, model: ServedModel) -> str:
        return instant(model.state_at)

    @display(description=gettext_lazy("Context"))
    def show_length(self, model: ServedModel) -> str:
        context = model.loaded_context or model.max_model_len
        return number(context) if context else "–"

    def save_model(self, request: HttpRequest, obj: ServedModel, form: Any, change: bool) -> None:
        model_update(model=obj)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm with what becomes of the files, and delete by the service."""
        model = self.get_object(request, unquote(object_id))
        if model is None or not self.has_delete_permission(request, model):
            return super().delete_view(request, object_id, extra_context)
        if request.method != "POST":
            manifest = _manifest(model)
            effect = _("It leaves the catalogue, and its files stay.")
            if manifest is not None:
                effect = _(
                    "It leaves the catalogue, with its stored files, %(size)s GB, unless another model has them."
                ) % {"size": number(manifest.num_bytes / 1e9, 2)}
            back = reverse("admin:chat_servedmodel_change", args=[model.pk])
            return confirm_page(
                request, act=_("Delete"), subject=model.name, effect=effect, back=back, is_dangerous=True
            )
        try:
            self.log_deletions(request, [model])
            num_bytes = model_remove(name=model.name, store=ModelStore(settings.LIGHTCONE_MODEL_STORE))
            values = {"model": model.name, "size": number(num_bytes / 1e9, 2)}
            self.message_user(request, _("%(model)s is deleted, with %(size)s GB of files.") % values)
        except ValidationError as error:
            self.message_user(request, " ".join(error.messages), messages.ERROR)
        except StoreError as error:
            said = _("Its files are not removed: %(problem)s") % {"problem": error}
            self.message_user(request, said, messages.ERROR)
        return redirect("admin:chat_servedmodel_changelist")


class ModelAdapterForm(forms.ModelForm):
    """The form of a LoRA adapter."""

    is_elsewhere = forms.BooleanField(
        label=gettext_lazy("On another machine"),
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=gettext_lazy("The path is one of the worker's machine: do not look for the adapter on this one."),
    )

    class Meta:
        model = ModelAdapter
        fields = ("model", "name", "path", "enabled")
        help_texts = {
            "name": gettext_lazy("Requests ask for MODEL:NAME."),
            "path": gettext_lazy("A folder as PEFT saves it, on the machine of the model's worker, from / on."),
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if {"model", "name", "path"} <= set(cleaned):
            path = "" if cleaned.get("is_elsewhere") else cleaned["path"]
            adapter_check(model=cleaned["model"], name=cleaned["name"], path=path)
        return cleaned


@admin.register(ModelAdapter)
class ModelAdapterAdmin(ModelAdmin):
    form = ModelAdapterForm
    list_display = ("show_name", "enabled", "path")
    list_select_related = ("model",)
    search_fields = ("name", "model__name")
    actions = None

    show_name = column(gettext_lazy("Requests ask for"), "full_name", str)

    def save_model(self, request: HttpRequest, obj: ModelAdapter, form: Any, change: bool) -> None:
        adapter_save(adapter=obj)

    def delete_model(self, request: HttpRequest, obj: ModelAdapter) -> None:
        adapter_delete(adapter=obj)


class WeightedAliasForm(forms.ModelForm):
    """The form of a weighted alias: a line for each model."""

    lines = LinesField(
        label=gettext_lazy("Models"),
        help_text=gettext_lazy("A model and its weight a line, such as `small 90`; each is asked as often as that."),
    )

    class Meta:
        model = WeightedAlias
        fields = ("name",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["lines"] = [f"{one['model']} {one['weight']}" for one in self.instance.targets]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        alias_name_check(name)
        return name

    def clean_lines(self) -> list[dict[str, Any]]:
        targets = []
        for line in self.cleaned_data["lines"]:
            model, _space, weight = line.rpartition(" ")
            targets.append(
                {"model": model.strip(), "weight": int(weight) if weight.isascii() and weight.isdigit() else weight}
            )
        targets_check(targets=targets)
        return targets


@admin.register(WeightedAlias)
class WeightedAliasAdmin(ModelAdmin):
    form = WeightedAliasForm
    list_display = ("name", "show_targets")
    search_fields = ("name",)
    fields = ("name", "lines")
    actions = None

    @display(description=gettext_lazy("Models"))
    def show_targets(self, alias: WeightedAlias) -> str:
        total = sum(one["weight"] for one in alias.targets)
        return ", ".join(f"{one['model']} {one['weight'] / total:.0%}" for one in alias.targets)

    def get_readonly_fields(self, request: HttpRequest, obj: WeightedAlias | None = None) -> tuple[str, ...]:
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: WeightedAlias, form: Any, change: bool) -> None:
        obj.pk = weighted_alias_set(name=obj.name, targets=form.cleaned_data["lines"]).pk

    def delete_model(self, request: HttpRequest, obj: WeightedAlias) -> None:
        weighted_alias_delete(name=obj.name)


def _manifest(model: ServedModel) -> Manifest | None:
    """Return the manifest of a stored model, None for another or if the store cannot be read."""
    return stored_manifest(store=ModelStore(settings.LIGHTCONE_MODEL_STORE), path=model.path)
