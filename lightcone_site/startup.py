"""The first step of every Django program: read the settings, so that a wrong value is one line, not a traceback."""

from __future__ import annotations

import os
import sys

WRONG_SETTINGS = 2
"""The exit code for settings that cannot be used."""


def settings_check() -> None:
    """Read all settings. End the program with a sentence for the operator if a value cannot be used."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    try:
        settings.INSTALLED_APPS  # noqa: B018  (reading one reads all)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"Lightcone cannot start: {error}\n")
        sys.exit(WRONG_SETTINGS)
