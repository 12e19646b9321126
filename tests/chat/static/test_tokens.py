"""The design tokens can be read in both themes: contrasts of WCAG 2.2 AA, computed from the file that pages load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "chat" / "static" / "chat"
SOURCE = (STATIC / "tokens.css").read_text()
TOKENS = dict(re.findall(r"^  (--[\w-]+): (.+);$", SOURCE, re.MULTILINE))
THEMES = ("light", "dark")
SURFACES = ("surface", "surface-raised", "surface-sunken", "surface-hover", "code")
MEANINGS = ("accent", "danger", "warn", "ok", "info")

TEXTS = [
    *((text, surface) for text in ("text", "text-soft", "text-faint", *MEANINGS) for surface in SURFACES),
    *((text, f"{meaning}-wash") for meaning in MEANINGS for text in ("text", "text-soft", meaning)),
    *((text, "selection") for text in ("text",)),
    *((f"{kind}-text", shade) for kind in ("accent", "danger") for shade in (kind, f"{kind}-hover")),
]
GRAPHICS = [
    *((line, surface) for line in ("line-strong", "focus") for surface in SURFACES[:3]),
    *((f"chart-{number}", "surface-raised") for number in range(1, 7)),
]
KEPT = (
    "surface surface-raised surface-sunken text text-soft line line-strong accent accent-text accent-wash danger "
    "danger-wash ok code shadow radius font mono"
).split()


def colour(name: str, theme: str) -> str:
    """Return the #rrggbb of a token in a theme."""
    value = TOKENS[f"--{name}"]
    if parts := re.fullmatch(r"light-dark\(([^,]+), ([^,]+)\)", value):
        value = parts[1 + THEMES.index(theme)]
    if named := re.fullmatch(r"var\(--([\w-]+)\)", value):
        return colour(named[1], theme)
    assert re.fullmatch(r"#[0-9a-f]{6}", value), f"{name} is {value}"
    return value


def luminance(hex_colour: str) -> float:
    shares = [int(hex_colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, theme: str) -> float:
    """Return the contrast of two tokens (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    low, high = sorted((luminance(colour(one, theme)), luminance(colour(other, theme))))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "surface"), TEXTS)
def test_text_can_be_read_on_its_surfaces(text, surface, theme):
    assert contrast(text, surface, theme) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("graphic", "surface"), GRAPHICS)
def test_borders_of_controls_focus_and_charts_stand_out(graphic, surface, theme):
    assert contrast(graphic, surface, theme) >= 3


@pytest.mark.parametrize("name", KEPT)
def test_names_that_pages_use_stay(name):
    assert f"--{name}" in TOKENS


def names_set(path: Path) -> set[str]:
    return set(re.findall(r"(--[\w-]+)\s*:", path.read_text()))


@pytest.mark.parametrize("path", sorted(STATIC.rglob("*.css")), ids=lambda path: path.name)
def test_sheets_use_tokens_that_exist(path):
    """A variable of Tailwind or of the sheet itself is fine; a name that nothing sets would be a hole in the page.

    Sheets of `admin/` are on pages of the console, which link console.css before (`STYLES` of chat/console/theme.py).
    """
    known = set(TOKENS) | names_set(path)
    if path.parent == STATIC / "admin":
        known |= names_set(STATIC / "admin" / "console.css")
    used = set(re.findall(r"var\((--[\w-]+)\)", path.read_text()))
    assert {name for name in used - known if not name.startswith("--color-")} == set()


def test_no_token_has_a_name_of_tailwind():
    """Tokens are outside of layers, so that they would win over the variables of django-unfold's sheet."""
    taken = re.compile(r"--(text|radius|shadow|spacing|font|color|container|leading|tracking|ease|blur|animate)-")
    shades = {"--text-soft", "--text-faint", "--shadow-low", "--shadow-high", "--radius-small", "--radius-control"}
    assert {name for name in TOKENS if taken.match(name)} - shades - {"--radius-large", "--radius-round"} == set()
