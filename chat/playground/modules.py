"""The ES modules of our pages: which other modules a module imports.

The names of served files have hashes (lightcone_site/static_files.py) and some modules are served together (joined.py),
so import lines are rewritten when files are collected. All read the lines by the patterns of this module.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

Read = Callable[[str], str]
"""Returns the text of a static file by its name. Raises FileNotFoundError."""
STATIC_IMPORT = (
    r"""(?P<matched>(?P<head>(?<![\w.$@])(?:import|export)(?:[\s{*][\w\s{},*$]*?[\s}]from)?\s*)"""
    r"""["'](?P<url>\.{1,2}/[^"'\s]+\.js)["'])"""
)
"""`import "./x.js"`, `import { a } from "./x.js"` and `export * from "./x.js"`, but not JSDoc's `@import`."""
DYNAMIC_IMPORT = r"""(?P<matched>(?<![\w.$])import\(\s*["'](?P<url>\.{1,2}/[^"'\s]+\.js)["']\s*\))"""


def is_in_jsdoc(found: re.Match[str]) -> bool:
    """Return True if an import is that of a type, in a comment that begins with two stars."""
    return found.string.rfind("/**", 0, found.start()) > found.string.rfind("*/", 0, found.start())


def imported(text: str, pattern: str = STATIC_IMPORT) -> list[str]:
    """Return the relative addresses that a module imports, in the order of their lines."""
    return [found["url"] for found in re.finditer(pattern, text) if not is_in_jsdoc(found)]


def target_of(importer: str, url: str) -> str:
    """Return the name of the static file that a module calls `url`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), url))


def closure_of(name: str, read: Read) -> tuple[str, ...]:
    """Return a module and all that its static imports lead to, each once and after the first that imports it."""
    names = [name]
    for importer in names:  # which grows
        targets = (target_of(importer, url) for url in imported(read(importer)))
        names += [target for target in dict.fromkeys(targets) if target not in names]
    return tuple(names)
