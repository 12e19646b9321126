"""Figures of live panels as texts: a template library."""

from __future__ import annotations

import time

from django import template
from django.utils.translation import gettext as _

from chat.console.figures import gigabytes, number, percent

register = template.Library()


@register.filter
def share(value: float) -> str:
    """Format 0..1 as a percentage."""
    return percent(value)


@register.filter
def rate(value: float) -> str:
    return f"{number(value, 0 if value >= 10 or value == 0 else 1)}/s"


@register.filter
def step(value: float) -> str:
    """Format the mean time of a step; a dash if none was computed."""
    return f"{number(value, 1)} ms" if value else "–"


@register.filter
def span(seconds: float) -> str:
    """Format a length of time, as `45 s`, `12 min` or `3 h 5 min`."""
    whole = int(max(0.0, seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def since(instant: float) -> str:
    """Format how long ago a unix instant was."""
    return span(time.time() - instant) if instant else "–"


@register.filter
def size(value: int) -> str:
    """Format bytes in the units of the other pages; a dash for 0."""
    if not value:
        return "–"
    return gigabytes(value) if value >= 1e8 else f"{number(value / 1e6, 1)} MB"


@register.filter
def state_name(state: str) -> str:
    """Return the name of a state of a model, worker or request."""
    names = {
        "ready": _("Ready"),
        "loading": _("Loading"),
        "unloaded": _("Unloaded"),
        "asleep": _("Asleep"),
        "draining": _("Draining"),
        "failed": _("Failed"),
        "lost": _("Lost"),
        "queued": _("Waits"),
        "running": _("Runs"),
    }
    return names.get(state, state)


@register.filter
def of(mapping: dict[str, int], name: str) -> int:
    """Return the number of a name; 0 if it has none."""
    return mapping.get(name, 0)
