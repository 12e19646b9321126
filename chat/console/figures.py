"""Figures on pages, in the form of the reader's language: 1,033.5 in English, 1.033,5 in German.

What programs read (files, APIs, values of form fields) is never made here.
"""

from __future__ import annotations

from decimal import Decimal

from django.utils.formats import number_format

SMALLEST_WHOLE = 1000
"""Milliseconds from which on they are shown as seconds."""


def number(value: float | Decimal, places: int = 0) -> str:
    """Format a number, rounded to so many digits after the point."""
    return number_format(Decimal(f"{value:.{places}f}"), places, force_grouping=True)


def short_number(value: float | Decimal, digits: int = 6) -> str:
    """Format a number, rounded to so many digits together, without zeros at the end of a fraction."""
    text = f"{Decimal(f'{value:.{digits}g}'):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return number_format(Decimal(text), force_grouping=True)


def fraction(value: Decimal, most_places: int = 6) -> str:
    """Format a number with at least two and at most so many digits after the point."""
    _whole, _point, digits = f"{value:.{most_places}f}".partition(".")
    return number(value, max(2, len(digits.rstrip("0"))))


def signed(value: float, places: int = 0) -> str:
    """Format a number with its sign, be it plus."""
    text = number(value, places)
    return text if text.startswith("-") else f"+{text}"


def percent(share: float, places: int = 0) -> str:
    """Format 0..1 as a percentage."""
    return f"{number(100 * share, places)} %"


def milliseconds(value: float | None) -> str:
    """Format milliseconds as `850 ms`, `1.24 s`, or a dash."""
    if value is None:
        return "–"
    return f"{number(value)} ms" if value < SMALLEST_WHOLE else f"{number(value / 1000, 2)} s"


def gigabytes(num_bytes: int) -> str:
    return f"{number(num_bytes / 1e9, 2)} GB"
