"""The playground's modules as few files: one for the page, and one for each room that is loaded when it is first shown.

A browser asks for six files at a time, and each costs a round trip: 80 small modules come later than one large one.
Modules are joined when static files are collected. As long as nothing is collected, they are served as written.

A joined module is a function that returns its exports. Imports become reads of those, so each name keeps its scope:

    import { t } from "../core/i18n.js";    const { t } = $core_i18n;
    export function Calls() { … }           const $tools_calls = (() => { function Calls() { … } return { Calls }; })();

Comments that take whole lines are left out, so no line within a template may look like one.
That suits modules whose exports are never assigned again and whose imports have no cycles; tests hold ours to both.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from chat.playground.modules import DYNAMIC_IMPORT, STATIC_IMPORT, Read, closure_of, imported, is_in_jsdoc, target_of

FOLDER = "chat/playground/app/"
PAGE = f"{FOLDER}main.js"
OTHER_PAGE = "chat/playground/shared.js"
"""A page of its own that needs some of the modules, and must not start the playground for them."""
LATER = "later-modules"
"""Id of the element with the addresses of the rooms. In the page's file they would make a cycle of hashed names."""

_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_NO_EXPORT = re.compile(r"^export \{\};$", re.MULTILINE)
_COMMENTS = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)


def joined_modules(read: Read) -> dict[str, str | None]:
    """Return the texts of what is served instead of our modules, None for those that are part of another's.

    `read` returns the text of a static file by its name, and raises an error that names one which is not there.
    """
    hosts = module_hosts(read)
    texts: dict[str, str | None] = dict.fromkeys(hosts)
    for host in sorted(set(hosts.values())):
        texts[host] = _Joined(host, hosts, read).text()
    return texts


def rooms(read: Read) -> list[str]:
    """Return the names of the modules of ours that the page loads when they are first needed."""
    found = {target for name in _reached(PAGE, read) for target in _targets(name, read, DYNAMIC_IMPORT)}
    return sorted(name for name in found if name.startswith(FOLDER))


def module_hosts(read: Read) -> dict[str, str]:
    """Return the file that serves each module of ours: the page's, that of the one room that needs it, or its own."""
    first = set(closure_of(PAGE, read))
    elsewhere = _reached(OTHER_PAGE, read)
    by_room = {room: set(closure_of(room, read)) - first for room in rooms(read)}
    hosts = {}
    for name in _reached(PAGE, read):
        if not name.startswith(FOLDER):
            continue
        users = [room for room, names in by_room.items() if name in names]
        if name in first:
            hosts[name] = name if name in elsewhere else PAGE
        else:
            hosts[name] = users[0] if len(users) == 1 else name
    return hosts


def _reached(name: str, read: Read) -> set[str]:
    names = [name]
    for importer in names:  # which grows
        for pattern in (STATIC_IMPORT, DYNAMIC_IMPORT):
            names += [target for target in _targets(importer, read, pattern) if target not in names]
    return set(names)


def _targets(importer: str, read: Read, pattern: str) -> list[str]:
    return [target_of(importer, url) for url in imported(read(importer), pattern)]


class _Joined:
    """One file that is served: a host and the modules that are part of it."""

    def __init__(self, host: str, hosts: Mapping[str, str], read: Read) -> None:
        self.host = host
        self.hosts = hosts
        self.read = read
        self.heads: dict[str, None] = {}  # import lines, each once and in order

    def text(self) -> str:
        members = [name for name in self._in_order() if self.hosts.get(name) == self.host]
        bodies = [self._module(name) for name in members]
        others = [_variable(name) for name in members]
        own = ", ".join(self._exports(self.host))
        ends = [f"export const {{ {own} }} = {_variable(self.host)};"] if own else []
        return "\n".join([*self.heads, *bodies, f"export {{ {', '.join(others)} }};", *ends, ""])

    def _in_order(self) -> list[str]:
        """Return the modules of the closure, each after those that it imports."""
        ordered: dict[str, None] = {}
        begun: set[str] = set()

        def visit(name: str) -> None:
            if name in ordered:
                return
            if name in begun:
                raise ValueError(f"{name} is imported by a module that it imports; modules cannot be joined in circles")
            begun.add(name)
            for target in _targets(name, self.read, STATIC_IMPORT):
                visit(target)
            ordered[name] = None

        visit(self.host)
        return list(ordered)

    def _module(self, name: str) -> str:
        text = re.sub(STATIC_IMPORT, lambda found: self._import(name, found), self.read(name))
        text = re.sub(DYNAMIC_IMPORT, lambda found: self._later(name, found), text)
        exports = ", ".join(self._exports(name))
        text = _NO_EXPORT.sub("", _EXPORT.sub("", _COMMENTS.sub("", text)))
        return f"const {_variable(name)} = (() => {{\n{text}return {{ {exports} }};\n}})();"

    def _exports(self, name: str) -> list[str]:
        return [found[1] for found in _EXPORT.finditer(self.read(name))]

    def _import(self, importer: str, found: re.Match[str]) -> str:
        """Return what stands for `import … from "…"` (the semicolon is not part of the match)."""
        if is_in_jsdoc(found):
            return found[0]
        target = target_of(importer, found["url"])
        host = self.hosts.get(target, target)
        variable = _variable(target)
        if host != self.host:
            names = f"{{ {variable} }}" if target in self.hosts else f"* as {variable}"
            self.heads[f'import {names} from "{self._relative(host)}";'] = None
        clause = found["head"].strip().removeprefix("import").removesuffix("from").strip()
        if not clause:
            return f"void {variable}"
        return f"const {_pattern(clause)} = {variable}"

    def _later(self, importer: str, found: re.Match[str]) -> str:
        if is_in_jsdoc(found):
            return found[0]
        target = target_of(importer, found["url"])
        if self.host == PAGE and target.startswith(FOLDER):
            return f'import(JSON.parse(document.getElementById("{LATER}").textContent)["{target}"])'
        return f'import("{self._relative(target)}")'

    def _relative(self, target: str) -> str:
        path = posixpath.relpath(target, posixpath.dirname(self.host))
        return path if path.startswith(".") else f"./{path}"


def _pattern(clause: str) -> str:
    """Return how an import clause reads as a pattern: `* as a`, `{ a as b }` or `a`, which is the default."""
    if clause.startswith("*"):
        return clause.removeprefix("*").strip().removeprefix("as").strip()
    if clause.startswith("{"):
        return re.sub(r"\s+as\s+", ": ", clause)
    return f"{{ default: {clause} }}"


def _variable(name: str) -> str:
    """Return the name of a module's exports: `$core_app` for core/app.js."""
    path = name.removeprefix(FOLDER).removeprefix("chat/").removesuffix(".js")
    return "$" + re.sub(r"\W", "_", path)
