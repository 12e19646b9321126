"""How static files are collected and named: joined, with hashes, compressed, and without what no page asks for.

A served file may be cached for ever, as its name changes with its content. Style sheets and our own ES modules name
others by their hashed names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from posixpath import dirname
from typing import Any

from django.contrib.staticfiles.apps import StaticFilesConfig
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile
from servestatic.storage import CompressedManifestStaticFilesStorage

from chat.playground.joined import PAGE, joined_modules
from chat.playground.modules import DYNAMIC_IMPORT, STATIC_IMPORT, Read, is_in_jsdoc

OURS = "chat/"
STYLES = (
    (r"""(?P<matched>url\(['"]{0,1}\s*(?P<url>.*?)["']{0,1}\))""", """url("%(url)s")"""),
    (r"""(?P<matched>@import\s*["']\s*(?P<url>.*?)["'])""", """@import url("%(url)s")"""),
)
IMPORTED_STYLE = re.compile(r"""^@import "(?P<file>[\w.-]+\.css)";$""", re.MULTILINE)
"""A style sheet beside the one that names it; its text stands there when it is served."""
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

    def post_process(self, paths: dict[str, Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Join, name and compress the collected files. `paths`: storage and path by name."""
        if not kwargs.get("dry_run"):
            yield from super().post_process(_joined(self, paths), *args, **kwargs)

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


def _joined(storage: HashedStaticFiles, paths: dict[str, Any]) -> dict[str, Any]:
    """Write the files that stand for several, and return what is served: storage and path by name."""

    def read(name: str) -> str:
        source, path = paths[name]
        with source.open(path) as file:
            return str(file.read().decode())

    texts = joined_modules(read) if PAGE in paths else {}
    for style in (name for name in paths if name.startswith(OURS) and name.endswith(".css")):
        texts[style] = _with_imports(style, read)
    served = dict(paths)
    for name, text in texts.items():
        storage.delete(name)
        if text is None:
            del served[name]
        else:
            storage.save(name, ContentFile(text))
            served[name] = (storage, name)
    return served


def _with_imports(style: str, read: Read) -> str:
    """Return the text of a style sheet with those that it imports from its own folder."""
    return IMPORTED_STYLE.sub(lambda found: read(f"{dirname(style)}/{found['file']}"), read(style))
