"""Console pages of alerts: what is open and was, the rules, and the log of deliveries."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display

from chat.access.admin.scoped import ScopedPage
from chat.access.roles import Act
from chat.alerts.models import CONDITIONS, KINDS, STATES, Alert, AlertChannel, AlertDelivery, AlertRule, Event
from chat.alerts.rules import rule_check, rule_save, rules_read
from chat.alerts.selectors import MANAGE, SEE, alerts_reached
from chat.alerts.texts import alert_text
from chat.console.figures import number, short_number
from chat.console.filters import TableFilter
from chat.console.fresh_form import FreshForm, FreshPage
from chat.console.pages import Heading, Labelled, ReadOnlyNewestFirst, column, instant

MOST_CHANNELS = 200


class OfOrgOrInstallation(ScopedPage):
    """A page whose rows belong to an organisation, or to the installation."""

    see, manage = SEE, MANAGE

    def reached(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> QuerySet[Any]:
        return alerts_reached(queryset, request.user, act)

    @display(description=_("Of"))
    def show_org(self, row: Any) -> str:
        return str(row.org) if row.org_id else str(_("the installation"))


class RuleForm(FreshForm):
    class Meta:
        model = AlertRule
        fields = ("is_on", "threshold", "window_s", "least_requests", "hold_s", "cooldown_s")
        help_texts = {
            "is_on": _("Off: its open alerts end, and none begins."),
            "hold_s": _("Seconds for which it is so before the alert fires."),
            "cooldown_s": _("Seconds at least between two notices that the same thing is wrong."),
            "window_s": _("Seconds over which the requests that ended are counted, the newest 5,000 of them."),
            "least_requests": _("With fewer requests in the window there is no alert."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "threshold" in self.fields and self.instance.pk:
            kind = KINDS[self.instance.condition]
            words = {"unit": kind.unit, "least": short_number(kind.least), "most": short_number(kind.most)}
            self.fields["threshold"].help_text = _("In %(unit)s, from %(least)s to %(most)s.") % words

    def _post_clean(self) -> None:
        super()._post_clean()
        if not self.errors:
            try:
                rule_check(rule=self.instance)
            except ValidationError as error:
                self.add_error(None, error)


@admin.register(AlertRule)
class AlertRuleAdmin(FreshPage, ModelAdmin):
    form = RuleForm
    list_display = ("show_condition", "is_on", "show_threshold", "show_hold", "show_cooldown")
    list_display_links = ("show_condition",)
    show_full_result_count = False
    sortable_by = ()
    actions = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertRule]:
        rules_read()  # makes those that are missing
        return super().get_queryset(request).order_by("pk")

    def get_fieldsets(self, request: HttpRequest, obj: AlertRule | None = None) -> Any:
        kind = KINDS[obj.condition] if obj is not None else None
        fields = ["is_on"]
        if kind is not None and kind.unit:
            fields.append("threshold")
        if kind is not None and kind.window_s is not None:
            fields += ["window_s", "least_requests"]
        return self.with_fresh(request, obj, ((None, {"fields": (*fields, "hold_s", "cooldown_s")}),))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: AlertRule, form: Any, change: bool) -> None:
        rule_save(rule=obj)

    @display(description=_("Condition"))
    def show_condition(self, rule: AlertRule) -> str:
        return str(CONDITIONS[rule.condition])

    @display(description=_("Threshold"))
    def show_threshold(self, rule: AlertRule) -> str:
        unit = KINDS[rule.condition].unit
        return f"{short_number(rule.threshold)} {unit}" if unit and rule.threshold is not None else "–"

    show_hold = column(_("Must hold for"), "hold_s", lambda seconds: f"{number(seconds)} s")
    show_cooldown = column(_("Cool-down"), "cooldown_s", lambda seconds: f"{number(seconds)} s")


class ConditionFilter(TableFilter):
    title = _("condition")
    parameter_name = column = "condition"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(CONDITIONS.items())


class OpenFilter(TableFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("open", _("Open")), ("over", _("Over"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(ended_at__isnull=self.value() == "open") if self.shown() else queryset


@admin.register(Alert)
class AlertAdmin(ReadOnlyNewestFirst, OfOrgOrInstallation):
    list_display = ("show_alert", "show_state", "show_org", "show_since", "show_ended")
    list_select_related = ("org",)
    list_filter = (OpenFilter, ConditionFilter)
    fields = (
        "show_alert",
        "show_state",
        "show_org",
        "show_text",
        "show_since",
        "show_fired",
        "show_noticed",
        "show_ended",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Leave out what has not held long enough."""
        return super().get_queryset(request).filter(fired_at__isnull=False).select_related("org")

    @display(description=_("Alert"), header=True)
    def show_alert(self, alert: Alert) -> Heading:
        return Heading(str(CONDITIONS[alert.condition]), alert.name)

    @display(description=_("State"), label={"open": "danger", "over": "success"})
    def show_state(self, alert: Alert) -> Labelled:
        return Labelled("open", _("Open")) if alert.ended_at is None else Labelled("over", _("Over"))

    @display(description=_("What"))
    def show_text(self, alert: Alert) -> str:
        return alert_text(alert)

    show_since = column(_("Since"), "since", instant)
    show_fired = column(_("Fired"), "fired_at", instant)
    show_noticed = column(_("Notice"), "notified_at", instant)
    show_ended = column(_("Ended"), "ended_at", instant)


class StateFilter(TableFilter):
    title = _("state")
    parameter_name = column = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(STATES.items())


class ChannelFilter(TableFilter):
    title = _("channel")
    parameter_name = "channel"
    column = "channel_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        channels = alerts_reached(AlertChannel.objects.all(), request.user, SEE).order_by("name")
        return [(str(pk), name) for pk, name in channels.values_list("pk", "name")[:MOST_CHANNELS]]


@admin.register(AlertDelivery)
class AlertDeliveryAdmin(ReadOnlyNewestFirst, OfOrgOrInstallation):
    list_display = ("show_title", "show_channel", "show_state", "attempts", "show_answer", "show_created")
    list_select_related = ("org",)
    list_filter = (StateFilter, ChannelFilter)
    fields = (
        *("public_id", "show_title", "show_event", "show_channel", "show_org", "show_state", "attempts"),
        *("status", "answer", "error", "text", "body", "show_created", "show_next", "show_ended"),
    )

    @display(description=_("Notice"))
    def show_title(self, delivery: AlertDelivery) -> str:
        return delivery.title

    @display(description=_("Channel"), header=True)
    def show_channel(self, delivery: AlertDelivery) -> Heading:
        return Heading(delivery.channel_name, self.show_org(delivery))

    @display(description=_("Event"), label={Event.FIRING: "danger", Event.RESOLVED: "success", Event.TEST: "info"})
    def show_event(self, delivery: AlertDelivery) -> Labelled:
        return Labelled(delivery.event, delivery.get_event_display())

    @display(description=_("State"), label={"waiting": "info", "delivered": "success", "failed": "danger"})
    def show_state(self, delivery: AlertDelivery) -> Labelled:
        return Labelled(delivery.state, delivery.get_state_display())

    @display(description=_("Answer"))
    def show_answer(self, delivery: AlertDelivery) -> str:
        return delivery.error or " ".join(str(one) for one in (delivery.status, delivery.answer) if one) or "–"

    @display(description=_("Next try"))
    def show_next(self, delivery: AlertDelivery) -> str:
        return instant(delivery.next_at) if delivery.ended_at is None else "–"

    show_created = column(_("Created"), "created_at", instant)
    show_ended = column(_("Ended"), "ended_at", instant)
