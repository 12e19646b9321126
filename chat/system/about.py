"""What the installation is made of: versions and licences of packages, and the settings as they hold."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==")
SECRET = re.compile(r"SECRET|PEPPER|PASSWORD|_TOKEN$|API_KEY")
MASKED = "••••••••"
LICENCE = "License :: OSI Approved :: "
MAX_LICENCE_CHARS = 60
"""Longer texts in a package's metadata are whole licences, not names."""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    licence: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as it holds. `is_set`: by the environment, not by its default."""

    name: str
    value: str
    is_set: bool


def versions() -> list[tuple[str, str]]:
    return [
        ("Lightcone", settings.LIGHTCONE_VERSION),
        ("Python", platform.python_version()),
        (_("System"), f"{platform.system()} {platform.release()} ({platform.machine()})"),
        (_("Executable"), sys.executable),
    ]


@cache
def packages() -> tuple[Package, ...]:
    """Return the packages of requirements.txt as they are installed, with the licence that each names."""
    found = []
    for line in (settings.BASE_DIR / "requirements.txt").read_text().splitlines():
        if match := PINNED.match(line):
            try:
                about = importlib.metadata.metadata(match[1])
            except importlib.metadata.PackageNotFoundError:
                continue  # another system's
            found.append(Package(match[1], str(about["Version"]), _licence(about)))
    return tuple(sorted(found, key=lambda package: package.name))


def settings_shown() -> list[Setting]:
    """Return all settings by name. Secrets, and passwords in addresses, are masked."""
    return [
        Setting(name, _shown(name, value), is_set)
        for name, (value, is_set) in sorted(settings.LIGHTCONE_SETTINGS_READ.items())
    ]


def _licence(about: Any) -> str:
    if expression := about.get("License-Expression"):
        return str(expression)
    named = [item.removeprefix(LICENCE) for item in about.get_all("Classifier") or [] if item.startswith(LICENCE)]
    text = str(about.get("License") or "").strip()
    return ", ".join(named) or (text if len(text) <= MAX_LICENCE_CHARS else "") or "?"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_shown(name, item) for item in value)
    text = str(value)
    if SECRET.search(name) and text:
        return MASKED
    if "://" in text:
        address = urlsplit(text)
        if address.password:
            return text.replace(f":{address.password}@", f":{MASKED}@")
    return text
