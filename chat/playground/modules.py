"""The ES modules of our pages: which other modules a module imports, and links that load all of them in one round trip.

The names of served files have hashes (lightcone_site/static_files.py), so import lines are rewritten when files are
collected. Both read the lines by the patterns of this module.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from pathlib import Path

from django import template
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

STATIC_IMPORT = (
    r"""(?P<matched>(?P<head>(?<![\w.$@])(?:import|export)(?:[\s{*][\w\s{},*$]*?[\s}]from)?\s*)"""
    r"""["'](?P<url>\.{1,2}/[^"'\s]+\.js)["'])"""
)
"""`import "./x.js"`, `import { a } from "./x.js"` and `export * from "./x.js"`, but not JSDoc's `@import`."""
DYNAMIC_IMPORT = r"""(?P<matched>(?<![\w.$])import\(\s*["'](?P<url>\.{1,2}/[^"'\s]+\.js)["']\s*\))"""

register = template.Library()


def is_in_jsdoc(found: re.Match[str]) -> bool:
    """Return True if an import is that of a type, in a comment that begins with two stars."""
    return found.string.rfind("/**", 0, found.start()) > found.string.rfind("*/", 0, found.start())


def imported(text: str, pattern: str = STATIC_IMPORT) -> list[str]:
    """Return the relative addresses that a module imports, in the order of their lines."""
    return [found["url"] for found in re.finditer(pattern, text) if not is_in_jsdoc(found)]


@lru_cache(64)
def module_closure(name: str) -> tuple[str, ...]:
    """Return a module and all that its static imports lead to, each once and after the first that imports it.

    Raises FileNotFoundError that names a module which is not there.
    """
    names = [name]
    for importer in names:  # which grows
        path = finders.find(importer)
        if not path:
            raise FileNotFoundError(f"The module {importer} is not among the static files.")
        for url in imported(Path(path).read_text()):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(importer), url))
            if target not in names:
                names.append(target)
    return tuple(names)


@register.simple_tag
def module_preloads(name: str) -> SafeString:
    """Render links for a page's entry module and each module that it needs, so that none waits for another."""
    links = ((static(module),) for module in module_closure(name))
    return format_html_join("\n", '<link rel="modulepreload" href="{}">', links)
