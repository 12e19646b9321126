#!/usr/bin/env python
"""Django's command line. The supervisor, `manage.py serve`, runs without Django."""

import sys

from lightcone_site.private_files import umask_set
from lightcone_site.startup import settings_check


def main() -> None:
    umask_set()
    if sys.argv[1:] == ["serve"]:
        from lightcone_site.serve.serving import main as serve

        sys.exit(serve())
    settings_check()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
