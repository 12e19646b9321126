"""The texts of pages in other languages than English, read from the catalogues below locale/.

The playground's JavaScript asks `t("English text {name}", {name})`; domain djangojs has its texts. Domain django has
those of templates and Python, which Django reads compiled. `manage.py messages` collects both.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from django.conf import settings

QUOTED = r'((?:".*"\s*)+)'
ENTRY = re.compile(
    rf"^msgid {QUOTED}(?:^msgid_plural {QUOTED}^msgstr\[0\] {QUOTED}^msgstr\[1\] {QUOTED}|^msgstr {QUOTED})",
    re.MULTILINE,
)
BETWEEN_FORMS = "\0"
"""Between the form for one and the form for more, as in compiled catalogues."""


def catalogue(language: str, domain: str) -> Path:
    """Return the path of a catalogue."""
    return Path(settings.LOCALE_PATHS[0]) / language / "LC_MESSAGES" / f"{domain}.po"


def catalogue_read(path: Path) -> dict[str, str]:
    """Return the translations of a catalogue by their English form; empty where one is missing. "" is its header."""
    if not path.exists():
        return {}
    return dict(_read(entry) for entry in ENTRY.finditer(path.read_text(encoding="utf-8")))


def _read(entry: re.Match[str]) -> tuple[str, str]:
    """Return the English text of an entry and its translation, each with both forms if it has two."""
    english, more, one_form, more_form, text = (_joined(part or "") for part in entry.groups())
    if entry[2] is None:
        return english, text
    forms = (one_form, more_form) if one_form and more_form else ()
    return f"{english}{BETWEEN_FORMS}{more}", BETWEEN_FORMS.join(forms)


@cache
def page_strings(language: str) -> dict[str, str]:
    """Return the playground's texts in a language, by their English form. English has none."""
    read = catalogue_read(catalogue(language.split("-")[0], "djangojs"))
    return {english: text for english, text in read.items() if english and text}


def _joined(quoted: str) -> str:
    """Return the text of adjacent quoted lines."""
    return "".join(ast.literal_eval(line) for line in quoted.split("\n") if line.strip())
