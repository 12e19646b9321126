"""The first act of every program of the installation: read the settings, so that a wrong value is one line and not a traceback."""

from __future__ import annotations

import os
import sys

WRONG_SETTINGS = 2
"""The exit code: starting again would change nothing."""


def settings_check() -> None:
    """End the program with a sentence for the operator where the environment holds what cannot be used."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    try:
        settings.INSTALLED_APPS  # noqa: B018  reads all of them
    except ImproperlyConfigured as error:
        sys.stderr.write(f"Lightcone cannot start: {error}\n")
        sys.exit(WRONG_SETTINGS)
