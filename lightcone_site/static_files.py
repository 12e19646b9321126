"""How static files are collected and named: with hashes, compressed, and without what no page asks for.

A served file may be cached for ever, as its name changes with its content. Style sheets and our own ES modules name
others by their hashed names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.staticfiles.apps import StaticFilesConfig
from django.core.exceptions import SuspiciousFileOperation
from servestatic.storage import CompressedManifestStaticFilesStorage

from chat.playground.modules import DYNAMIC_IMPORT, STATIC_IMPORT, is_in_jsdoc

OURS = "chat/"
STYLES = (
    (r"""(?P<matched>url\(['"]{0,1}\s*(?P<url>.*?)["']{0,1}\))""", """url("%(url)s")"""),
    (r"""(?P<matched>@import\s*["']\s*(?P<url>.*?)["'])""", """@import url("%(url)s")"""),
)
MODULES = (
    (STATIC_IMPORT, """%(head)s"%(url)s\""""),
    (DYNAMIC_IMPORT, """import("%(url)s")"""),
)


class ServedFiles(StaticFilesConfig):
    """Django's application of static files, which leaves out what the pages of this installation never ask for.

    These are source maps, types and notes for developers, Redoc, and the pages of the REST framework.
    """

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "*.map",
        "*.d.ts",
        "*.md",
        "HASHES.json",
        "redoc",
        "rest_framework",
    ]


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Static files with hashed names. Where none have been collected, as in development, names stay as they are."""

    # A pass hashes a file by what those that it names are called so far: a chain of imports takes as many passes.
    max_post_process_passes = 30
    # Django's own patterns read all scripts of other packages as modules, megabytes of them in each pass.
    patterns = (("*.css", STYLES), (f"{OURS}*.js", MODULES))

    def stored_name(self, name: str) -> str:
        """Return the hashed name. Raises ValueError that names a file which was not collected."""
        return str(super().stored_name(name)) if self.hashed_files else name

    def hashed_name(self, name: str, *args: Any, **kwargs: Any) -> str:
        """Return the name with a hash. A file that another package's style sheet names in vain keeps its name."""
        try:
            return str(super().hashed_name(name, *args, **kwargs))
        except (ValueError, SuspiciousFileOperation):
            if name.startswith(OURS):
                raise
            return name

    def url_converter(self, *args: Any, **kwargs: Any) -> Callable[[re.Match[str]], str]:
        """Return the function that rewrites what a pattern found, unless that is the import of a type in a comment."""
        converter = super().url_converter(*args, **kwargs)
        return lambda found: found["matched"] if is_in_jsdoc(found) else converter(found)
