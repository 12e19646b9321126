"""What the page of usage is asked for: a span, its periods and zone, a group and filters, from a query string."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.console.figures import number
from chat.console.zones import MAX_CHARS, zone_read
from chat.usage.measures import hour_of
from chat.usage.models import DAY, HOUR, STATUS_LABELS, Dimension
from chat.usage.selectors import ORG, Asked
from chat.usage.spans import Span, day_span, has_whole_hours

OWN_DAYS = "days"
SPANS = {
    "24h": gettext_lazy("Last 24 hours"),
    "7d": gettext_lazy("Last 7 days"),
    "30d": gettext_lazy("Last 30 days"),
    "90d": gettext_lazy("Last 90 days"),
    "365d": gettext_lazy("Last 365 days"),
    "month": gettext_lazy("This month"),
    "last_month": gettext_lazy("Last month"),
    OWN_DAYS: gettext_lazy("Days from and to"),
}
USUAL_SPAN = "30d"
PERIODS = {"": gettext_lazy("as suits"), "hour": gettext_lazy("hour"), "day": gettext_lazy("day")}
GROUPS = {
    "": gettext_lazy("nothing"),
    Dimension.PROJECT.value: gettext_lazy("project"),
    Dimension.KEY.value: gettext_lazy("API key"),
    Dimension.USER.value: gettext_lazy("person"),
    Dimension.MODEL.value: gettext_lazy("model"),
    Dimension.ROUTE.value: gettext_lazy("route"),
    Dimension.STATUS.value: gettext_lazy("status"),
    ORG: gettext_lazy("organisation"),
}
MOST_DAYS, MOST_DAYS_BY_HOUR, MOST_DAYS_BY_SUMS = 1830, 31, 92
"""The last: days of other zones than UTC are summed by hours, which takes too long for more where totals do not do."""
FIRST_YEAR, LAST_YEAR = 2000, 2100


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for, and what the page says beside it."""

    asked: Asked
    span_name: str
    notes: tuple[str, ...] = ()


class UsageForm(forms.Form):
    """The form of the page of usage. Its data is the query string. What that leaves out is the last 30 days, or own
    days where the first is named, in the browser's zone.
    """

    span = forms.ChoiceField(
        label=gettext_lazy("Time"), choices=list(SPANS.items()), required=False, initial=USUAL_SPAN
    )
    first = forms.DateField(label=gettext_lazy("From"), required=False, widget=forms.DateInput({"type": "date"}))
    last = forms.DateField(label=gettext_lazy("To"), required=False, widget=forms.DateInput({"type": "date"}))
    period = forms.ChoiceField(label=gettext_lazy("By"), choices=list(PERIODS.items()), required=False)
    group = forms.ChoiceField(label=gettext_lazy("Group by"), choices=list(GROUPS.items()), required=False)
    zone = forms.CharField(label=gettext_lazy("Time zone"), max_length=MAX_CHARS, required=False)

    project = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1, widget=forms.HiddenInput)
    user = forms.IntegerField(required=False, min_value=-(2**63), max_value=2**63 - 1, widget=forms.HiddenInput)
    key = forms.CharField(required=False, max_length=16, strip=False, widget=forms.HiddenInput)
    model = forms.CharField(required=False, max_length=200, strip=False, widget=forms.HiddenInput)
    route = forms.CharField(required=False, max_length=100, strip=False, widget=forms.HiddenInput)
    status = forms.ChoiceField(required=False, choices=[("", ""), *STATUS_LABELS.items()], widget=forms.HiddenInput)

    def __init__(self, query: Any, zone: ZoneInfo) -> None:
        given = {name: value for name, value in query.dict().items() if value} if query else {}
        span = OWN_DAYS if "first" in given else USUAL_SPAN
        super().__init__({"span": span, "zone": zone.key} | given)
        self._browser_zone = zone

    def clean_zone(self) -> ZoneInfo:
        name = self.cleaned_data["zone"]
        return zone_read(name) if name else self._browser_zone

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        span = cleaned.get("span")
        if span == OWN_DAYS:
            first, last = cleaned.get("first"), cleaned.get("last")
            if first is None or last is None:
                missing = "first" if first is None else "last"
                if missing not in self.errors:
                    self.add_error(missing, _("Give the first day and the last, such as 2026-01-31."))
            else:
                self._days_check(first, last, cleaned.get("period", ""))
        return cleaned

    def _days_check(self, first: date, last: date, period: str) -> None:
        most = MOST_DAYS_BY_HOUR if period == "hour" else MOST_DAYS
        num_days = (last - first).days + 1
        if not (FIRST_YEAR <= first.year <= LAST_YEAR and FIRST_YEAR <= last.year <= LAST_YEAR):
            values = {"first": FIRST_YEAR, "last": LAST_YEAR}
            self.add_error("first", _("Days are in the years %(first)s to %(last)s.") % values)
        elif num_days < 1:
            self.add_error("last", _("The last day is before the first; exchange them."))
        elif num_days > most:
            limits = {"days": number(num_days), "most": number(most)}
            text = _("These are %(days)s days; choose at most %(most)s, by hours at most 31.") % limits
            self.add_error("last", text)

    def choice(self, *, is_quick: bool) -> Choice:
        """Return what was asked for, or the last 30 days if it cannot be.

        `is_quick`: totals by one dimension may answer.
        """
        cleaned = self.cleaned_data if self.is_valid() else {}
        zone = cleaned.get("zone") or self._browser_zone
        name = cleaned.get("span", USUAL_SPAN)
        first, last = _days(name, timezone.now().astimezone(zone), cleaned)
        filters = {one: cleaned[one] for one in FILTERS if cleaned.get(one) not in (None, "")}
        notes = []
        if not has_whole_hours(zone, first, last):
            notes.append(_("Days are those of UTC: sums by hour make no days of %(zone)s.") % {"zone": zone.key})
            zone = ZoneInfo("UTC")
        elif (not is_quick or filters) and (last - first).days >= MOST_DAYS_BY_SUMS and zone.key != "UTC":
            notes.append(_("Days are those of UTC, as more than 92 were asked for with a filter."))
            zone = ZoneInfo("UTC")
        period = cleaned.get("period") or ("hour" if (last - first).days < 2 else "day")
        if period == "hour" and (last - first).days >= MOST_DAYS_BY_HOUR:
            notes.append(_("Shown by days: hours are shown of at most 31."))
            period = "day"
        length_h = HOUR if period == "hour" else DAY
        if name == "24h":
            end = hour_of(timezone.now()) + 1
            span = Span(end - 24, end, zone, HOUR)
        else:
            span = day_span(first, last, zone, length_h)
        return Choice(Asked(span, cleaned.get("group", ""), filters), name, tuple(notes))


FILTERS = ("project", "key", "user", "model", "route", "status")


def _days(name: str, now: datetime, cleaned: dict[str, Any]) -> tuple[date, date]:
    """Return the first and the last day of a span."""
    today = now.date()
    if name == OWN_DAYS:
        return cleaned["first"], cleaned["last"]
    if name == "month":
        return today.replace(day=1), today
    if name == "last_month":
        last = today.replace(day=1) - timedelta(days=1)
        return last.replace(day=1), last
    num_days = 1 if name == "24h" else int(name.removesuffix("d"))
    return today - timedelta(days=num_days - 1), today
