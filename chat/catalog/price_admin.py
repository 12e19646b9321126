"""The console's page of prices: those of all models, newest first, a form for the next one, deletion of one to come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from chat.catalog.models import ModelPrice
from chat.catalog.prices import AMOUNTS, price_add, price_delete, price_start_check
from chat.catalog.services import model_names
from chat.console.acts import confirm_page
from chat.console.figures import fraction
from chat.console.pages import Labelled, ReadOnlyNewestFirst, instant
from chat.console.zones import MAX_CHARS, instant_read, zone_of_browser, zone_read

COLUMNS = ("show_model", "show_start", "show_state", "show_input", "show_cached", "show_output", "show_reasoning")


class ClockField(forms.CharField):
    """A field for a day and a time without a zone."""

    widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            clock = datetime.fromisoformat(text)
        except ValueError:
            clock = datetime.max
        if clock.tzinfo is not None or not 2000 <= clock.year < 9000:
            raise ValidationError(_("This is no day and time; write one such as 2026-12-31 18:00."))
        return clock


class ModelPriceForm(forms.ModelForm):
    """The form of a new price."""

    starts_at = ClockField(
        label=gettext_lazy("Starts at"),
        required=False,
        max_length=40,
        help_text=gettext_lazy("From when on it holds, for requests that end from then on. Empty: from now on."),
    )
    zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=MAX_CHARS,
        widget=UnfoldAdminTextInputWidget,
        help_text=gettext_lazy("Of the start, such as Europe/Berlin or UTC."),
    )

    class Meta:
        model = ModelPrice
        fields = ("model", "starts_at", *AMOUNTS)
        help_texts = {
            "input": gettext_lazy("Of a million prompt tokens, in the currency of LIGHTCONE_CURRENCY. 0: free."),
            "cached": gettext_lazy("Of a million prompt tokens that were in the cache. Empty: as the others."),
            "output": gettext_lazy("Of a million generated tokens. 0: free."),
            "reasoning": gettext_lazy("Of a million generated tokens of reasoning. Empty: as the others."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "model" in self.fields:
            self.fields["model"].required = True

    def clean_zone(self) -> Any:
        return zone_read(self.cleaned_data["zone"])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        clock, model = cleaned.get("starts_at"), cleaned.get("model")
        if isinstance(clock, datetime) and "zone" in cleaned:
            try:
                cleaned["starts_at"] = instant_read(clock, cleaned["zone"])
                if model is not None:
                    price_start_check(model=model, starts_at=cleaned["starts_at"])
            except ValidationError as error:
                self.add_error("starts_at", error.messages)
        return cleaned


class PricedModelFilter(DropdownFilter):
    title = gettext_lazy("model")
    parameter_name = "model"

    def has_output(self) -> bool:
        return True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in model_names()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ModelPrice]) -> QuerySet[ModelPrice]:
        name = self.value()
        return queryset.filter(model__name=name) if name and "\0" not in name else queryset


@admin.register(ModelPrice)
class ModelPriceAdmin(ReadOnlyNewestFirst):
    form = ModelPriceForm
    list_display = COLUMNS
    list_filter = (PricedModelFilter,)
    list_select_related = ("model",)
    fields = COLUMNS
    add_fieldsets = ((None, {"fields": ("model", "starts_at", "zone", *AMOUNTS)}),)

    def get_fieldsets(self, request: HttpRequest, obj: ModelPrice | None = None) -> Any:
        return self.add_fieldsets if obj is None else super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: ModelPrice | None = None) -> Any:
        return () if obj is None else self.fields

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"zone": zone_of_browser(request).key, **super().get_changeform_initial_data(request)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("chat.add_modelprice"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True also for a price that has started: the service says why it stays."""
        return bool(request.user.has_perm("chat.delete_modelprice"))

    def save_model(self, request: HttpRequest, obj: ModelPrice, form: Any, change: bool) -> None:
        amounts = {name: form.cleaned_data[name] for name in AMOUNTS}
        made = price_add(model=form.cleaned_data["model"], starts_at=form.cleaned_data["starts_at"], **amounts)
        obj.pk, obj.model_name, obj.starts_at = made.pk, made.model_name, made.starts_at

    def response_add(self, request: HttpRequest, obj: ModelPrice, post_url_continue: str | None = None) -> HttpResponse:
        values = {"model": obj.model_name, "start": instant(obj.starts_at)}
        self.message_user(request, _("%(model)s has this price from %(start)s on.") % values)
        return redirect("admin:chat_modelprice_changelist")

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm and delete by the service, which refuses a price that has started."""
        price = self.get_object(request, unquote(object_id))
        if price is None or not self.has_delete_permission(request, price):
            return super().delete_view(request, object_id, extra_context)
        back = reverse("admin:chat_modelprice_change", args=[price.pk])
        if request.method != "POST":
            effect = _("The price before it holds on. Nothing that was charged changes.")
            return confirm_page(
                request, act=_("Delete"), subject=str(price), effect=effect, back=back, is_dangerous=True
            )
        try:
            price_delete(price=price)
        except ValidationError as error:
            self.message_user(request, " ".join(error.messages), messages.ERROR)
            return redirect(back)
        self.message_user(request, _("The price is deleted."))
        return redirect("admin:chat_modelprice_changelist")

    @display(description=gettext_lazy("Model"))
    def show_model(self, price: ModelPrice) -> str:
        if price.model is None:
            return _("%(name)s (deleted)") % {"name": price.model_name}
        return str(price.model.name)

    @display(description=gettext_lazy("Starts at (UTC)"))
    def show_start(self, price: ModelPrice) -> str:
        return f"{price.starts_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    @display(description=gettext_lazy("State"), label={"later": "info", "started": "default"})
    def show_state(self, price: ModelPrice) -> Labelled:
        if price.starts_at > timezone.now():
            return Labelled("later", _("to come"))
        return Labelled("started", _("started"))

    @display(description=gettext_lazy("Input"))
    def show_input(self, price: ModelPrice) -> str:
        return amount_text(price.input)

    @display(description=gettext_lazy("Cached input"))
    def show_cached(self, price: ModelPrice) -> str:
        return amount_text(price.cached)

    @display(description=gettext_lazy("Output"))
    def show_output(self, price: ModelPrice) -> str:
        return amount_text(price.output)

    @display(description=gettext_lazy("Reasoning"))
    def show_reasoning(self, price: ModelPrice) -> str:
        return amount_text(price.reasoning)


def amount_text(amount: Any) -> str:
    """Format the price of a million tokens, with at least two digits after the point."""
    return "–" if amount is None else fraction(amount)
