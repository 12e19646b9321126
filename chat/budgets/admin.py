"""Console pages of budgets: a bar for each, with what is reserved, left and to be expected."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget

from chat.access.admin.scoped import ScopedPage
from chat.access.models import ApiKey, Membership, Org, Project
from chat.access.policy import may, standing_of, visible
from chat.access.roles import Act, Reach
from chat.budgets.forecast import BudgetView, budget_views
from chat.budgets.models import MAX_AMOUNT, NANOS_PER_MICRO, Budget, Unit
from chat.budgets.services import REFERENCES, budget_check, budget_delete, budget_org, budget_save
from chat.budgets.windows import WindowKind
from chat.catalog.models import ServedModel
from chat.console.figures import fraction, number
from chat.console.fresh_form import FreshForm, FreshPage

MICROS = 1_000_000
SHOWN = "scope === null || scope === '{scope}'"
"""When the form shows what a budget may be on: once it is the scope that was chosen. Without scripts it shows all."""
NAMES = {"amount": "how_much", "window": "time_window"}
"""The form's own fields, by columns."""
FIXED = ("scope", *REFERENCES.values(), "unit", "window", "time_zone", "week_start")
"""What a budget has counted by, and so keeps."""


class BudgetForm(FreshForm):
    """A budget. The amount is typed in tokens or in the currency.

    A new one's window has a name of the form: django-unfold keeps the fields of a form with conditions as variables of
    its scripts, where `window` would hide the browser's own.
    """

    actor: Any

    how_much = forms.DecimalField(
        label=_("Amount"),
        min_value=Decimal("0.000001"),
        max_digits=19,
        decimal_places=6,
        widget=UnfoldAdminDecimalFieldWidget,
    )
    time_window = forms.ChoiceField(
        label=_("Window"),
        choices=WindowKind.choices,
        initial=WindowKind.MONTH,
        widget=UnfoldAdminSelectWidget,
        help_text=_("It counts from its creation on. Hours are those of UTC."),
    )

    class Meta:
        model = Budget
        fields = ("name", "scope", *REFERENCES.values(), "unit", "time_zone", "week_start", "is_hard")
        help_texts = {
            "scope": _("What it is on; choose that below. A budget on an account counts one organisation."),
            "time_zone": _("Of days, weeks and months, such as Europe/Berlin."),
            "is_hard": _("Refuse requests that it does not cover. Off: only count."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "how_much" in self.fields:
            self.fields["how_much"].help_text = _(
                "Of tokens, prompts and answers together; or of %(currency)s, by the models' prices."
            ) % {"currency": settings.LIGHTCONE_CURRENCY}
            if self.instance.pk:
                del self.fields["time_window"]  # which is shown, and stays
                divisor = MICROS if self.instance.unit == Unit.MONEY else 1
                self.initial["how_much"] = Decimal(self.instance.amount) / divisor
        for column, rows in references(self.actor).items():
            if column in self.fields:
                self.fields[column].queryset = rows

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if window := cleaned.get("time_window"):
            self.instance.window = window
        unit = cleaned.get("unit") or self.instance.unit
        how_much: Decimal | None = cleaned.get("how_much")
        if how_much is not None:
            amount = how_much * MICROS if unit == Unit.MONEY else how_much
            if amount != amount.to_integral_value():
                self.add_error("how_much", _("Tokens are whole."))
            elif amount > MAX_AMOUNT:
                most = MAX_AMOUNT // MICROS if unit == Unit.MONEY else MAX_AMOUNT
                self.add_error("how_much", _("Give at most %(most)s.") % {"most": number(most)})
            else:
                cleaned["amount"] = self.instance.amount = int(amount)
        return cleaned

    def _post_clean(self) -> None:
        """Check the budget as a whole, once Django has put the chosen values into it."""
        super()._post_clean()
        if self.errors:
            return
        budget = self.instance
        for scope, column in REFERENCES.items():
            if column != "org" and scope != budget.scope:
                setattr(budget, column, None)
        budget.org = budget_org(budget)
        try:
            budget_check(budget=budget)
        except ValidationError as error:
            for name, messages in error.message_dict.items():
                place = NAMES.get(name, name)
                self.add_error(place if place in self.fields else None, messages)


def references(user: Any) -> dict[str, QuerySet[Any]]:
    """Return what a person may put budgets on, by column."""
    act = Act.BUDGETS_MANAGE
    models = ServedModel.objects.all() if may(user, Act.MODELS_MANAGE) else ServedModel.objects.none()
    keys = ApiKey.objects.filter(deleted_at=None).select_related("project")
    return {
        "org": visible(Org.objects.all(), user, act, org="pk", project="projects"),
        "project": visible(Project.objects.select_related("org"), user, act, project="pk"),
        "member": visible(Membership.objects.select_related("user", "org"), user, act, project="org__projects"),
        "key": visible(keys, user, act, org="project__org_id"),
        "model": models,
    }


@admin.register(Budget)
class BudgetAdmin(FreshPage, ScopedPage):
    see, manage = Act.USAGE_SEE, Act.BUDGETS_MANAGE
    form = BudgetForm
    list_display = ("name", "show_on", "show_kind", "show_bar", "show_left", "show_next", "show_forecast")
    list_per_page = 50
    conditional_fields = {name: SHOWN.format(scope=scope) for scope, name in REFERENCES.items()}
    search_fields = ("name",)
    actions = None
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Budget]:
        rows = super().get_queryset(request)
        return rows.select_related("org", "project", "member__user", "member__org", "key", "model").order_by("-id")

    def own_rows(self, request: HttpRequest) -> Q:
        return Q(key__owner=request.user) | Q(member__user=request.user)

    def reached(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> QuerySet[Any]:
        """Add the budgets of models, which belong to the installation."""
        rows = super().reached(request, queryset, act)
        of_models = Act.MODELS_SEE if act == self.see else Act.MODELS_MANAGE
        if standing_of(request.user).reach(of_models) == Reach.ORG:
            rows = rows | queryset.filter(org=None)
        return rows

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the windows of the page's budgets together."""
        changes = super().get_changelist_instance(request)
        now = datetime.now(UTC)
        views = budget_views(list(changes.result_list), now=now)
        for budget in changes.result_list:
            budget.view, budget.seen_at = views[budget.pk], now
        return changes

    def get_fieldsets(self, request: HttpRequest, obj: Budget | None = None) -> Any:
        on = tuple(REFERENCES.values())
        if obj is not None:
            on = (REFERENCES[obj.scope],)
        groups = (
            (None, {"fields": ("name", "scope", *on)}),
            (_("How much"), {"fields": ("unit", "how_much", "is_hard")}),
            (_("When"), {"fields": ("time_window" if obj is None else "window", "time_zone", "week_start")}),
        )
        return self.with_fresh(request, obj, groups)

    def get_readonly_fields(self, request: HttpRequest, obj: Budget | None = None) -> tuple[str, ...]:
        return FIXED if obj else ()

    def get_form(self, request: HttpRequest, obj: Budget | None = None, change: bool = False, **options: Any) -> Any:
        form = super().get_form(request, obj, change, **options)
        form.actor = request.user
        return form

    def save_model(self, request: HttpRequest, obj: Budget, form: Any, change: bool) -> None:
        budget_save(budget=obj)

    def delete_model(self, request: HttpRequest, obj: Budget) -> None:
        budget_delete(budget=obj)

    @display(description=_("On"))
    def show_on(self, budget: Budget) -> str:
        return f"{budget.get_scope_display()}: {getattr(budget, REFERENCES[budget.scope])}"

    @display(description=_("Kind"))
    def show_kind(self, budget: Budget) -> str:
        kind = _("hard") if budget.is_hard else _("soft")
        return f"{budget.get_window_display()}, {kind}"

    @display(description=_("Spent"))
    def show_bar(self, budget: Any) -> str:
        view: BudgetView = budget.view
        text = _("%(spent)s of %(amount)s") % {
            "spent": _amount(view, view.spent),
            "amount": _amount(view, view.entry.amount),
        }
        if view.held:
            text = _("%(text)s, %(held)s reserved") % {"text": text, "held": _amount(view, view.held)}
        return format_html(
            '<progress class="lc-budget-bar" max="100" value="{}">{} %</progress><br>{} ({} %)',
            round(min(100, view.percent + view.held_percent)),
            round(view.percent),
            text,
            round(view.percent),
        )

    @display(description=_("Left"))
    def show_left(self, budget: Any) -> str:
        return _amount(budget.view, budget.view.left)

    @display(description=_("Next window"))
    def show_next(self, budget: Any) -> str:
        ends_at = budget.view.window.ends_at
        if ends_at is None:
            return str(_("never"))
        return f"{ends_at.astimezone(ZoneInfo(budget.time_zone)):%Y-%m-%d %H:%M} {budget.time_zone}"

    @display(description=_("Forecast"))
    def show_forecast(self, budget: Any) -> str:
        forecast = budget.view.forecast(budget.seen_at)
        if forecast is None:
            return "–"
        text = _amount(budget.view, forecast)
        return str(_("%(text)s: over") % {"text": text}) if forecast > budget.view.entry.amount else text


def _amount(view: BudgetView, amount: int) -> str:
    if view.entry.unit == Unit.TOKENS:
        return number(amount)
    return f"{fraction(Decimal(amount) / (NANOS_PER_MICRO * MICROS))} {settings.LIGHTCONE_CURRENCY}"
