#!/usr/bin/env python
"""Django's command line."""

import os
import sys

from chat.private_files import umask_set


def main() -> None:
    umask_set()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.INSTALLED_APPS  # noqa: B018  reads the environment now, so that a wrong value is one line and not a traceback
    except ImproperlyConfigured as error:
        sys.exit(f"Lightcone cannot start: {error}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
