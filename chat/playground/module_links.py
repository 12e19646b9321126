"""What the head of a page says of its modules, so that all that it needs at first arrives in one round trip."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from django import template
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage
from django.templatetags.static import static
from django.utils.html import format_html_join, json_script
from django.utils.safestring import SafeString

from chat.playground.joined import LATER, PAGE, module_hosts, rooms
from chat.playground.modules import closure_of

register = template.Library()


@register.simple_tag
@lru_cache(8)
def module_links(entry: str) -> SafeString:
    """Render links that load a page's entry module and each file that it needs, and the addresses of later ones.

    Raises FileNotFoundError that names a module which is not among the static files.
    """
    needed = closure_of(entry, found_text)
    if not staticfiles_storage.hashed_files:
        return _preloads(needed)
    hosts = module_hosts(found_text)
    files = _preloads(name for name in needed if hosts.get(name, name) == name)
    return files + json_script({room: static(room) for room in rooms(found_text)}, LATER) if entry == PAGE else files


def _preloads(names: Iterable[str]) -> SafeString:
    return format_html_join("\n", '<link rel="modulepreload" href="{}">', ((static(name),) for name in names))


@lru_cache(256)
def found_text(name: str) -> str:
    """Return the text of a static file. Raises FileNotFoundError."""
    path = finders.find(name)
    if not path:
        raise FileNotFoundError(f"The module {name} is not among the static files.")
    return Path(path).read_text()
