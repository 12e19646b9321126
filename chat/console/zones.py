"""The time zone of whoever looks: named in the query string, or told by the browser in a cookie, or UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _

COOKIE = "lightcone_zone"
"""Set by console.js."""
MAX_CHARS = 64


@cache
def zone_names() -> tuple[str, ...]:
    return tuple(sorted(available_timezones()))


def zone_read(name: str) -> ZoneInfo:
    """Return the zone of a name such as Europe/Berlin. Raises ValidationError."""
    if name not in zone_names():
        shown = name[:MAX_CHARS]
        raise ValidationError(_("%(name)r is no time zone; write one such as Europe/Berlin or UTC.") % {"name": shown})
    return ZoneInfo(name)


def zone_of_browser(request: HttpRequest) -> ZoneInfo:
    """Return the zone that the browser has told, UTC if it has told none."""
    name = request.COOKIES.get(COOKIE, "")
    return ZoneInfo(name if name in zone_names() else "UTC")


def instant_read(clock: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a clock's time in a zone. Raises ValidationError where the clock is set past it or twice.

    `clock`: without a zone.
    """
    early, late = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if early.utcoffset() != late.utcoffset():
        values = {"time": f"{clock:%Y-%m-%d %H:%M}", "zone": zone.key}
        if early.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != clock:
            raise ValidationError(_("%(time)s does not exist in %(zone)s: clocks are set forward past it.") % values)
        raise ValidationError(
            _("%(time)s comes twice in %(zone)s, as clocks are set back; write the time in UTC.") % values
        )
    return early.astimezone(UTC)
