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

ENTRY = re.compile(r'^msgid ((?:".*"\s*)+)^msgstr ((?:".*"\s*)+)', re.MULTILINE)


def catalogue(language: str, domain: str) -> Path:
    """Return the path of a catalogue."""
    return Path(settings.LOCALE_PATHS[0]) / language / "LC_MESSAGES" / f"{domain}.po"


def catalogue_read(path: Path) -> dict[str, str]:
    """Return the translations of a catalogue by their English form; empty where one is missing. "" is its header."""
    if not path.exists():
        return {}
    return {_joined(entry[1]): _joined(entry[2]) for entry in ENTRY.finditer(path.read_text(encoding="utf-8"))}


@cache
def page_strings(language: str) -> dict[str, str]:
    """Return the playground's texts in a language, by their English form. English has none."""
    read = catalogue_read(catalogue(language.split("-")[0], "djangojs"))
    return {english: text for english, text in read.items() if english and text}


def _joined(quoted: str) -> str:
    """Return the text of adjacent quoted lines."""
    return "".join(ast.literal_eval(line) for line in quoted.split("\n") if line.strip())
