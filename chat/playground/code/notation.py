"""Write a JSON value as a literal of Python, of JavaScript or of JSON, on lines that a person can read.

Letters of every script stay as they are. What a person could not see is escaped: it could hide something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chat.playground.code.media import Media

LINE_CHARS = 100
INDENT = "  "
IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
FILE = re.compile("\0([^\0]+)\0")
"""Of JSON: where the base64 of a file belongs. NUL is always escaped in JSON."""


@dataclass(frozen=True, slots=True)
class Notation:
    """How a language writes values."""

    words: dict[Any, str]
    """Those of None, True and False."""
    text: Callable[[str], str]
    key: Callable[[str], str]
    media: Callable[[Media], str]
    indent: str
    in_braces: str = ""
    """What stands inside the braces of an object on one line."""

    def write(self, value: Any, level: int = 0) -> str:
        """Return a literal, whose further lines are indented for `level`."""
        if isinstance(value, Media):
            return self.media(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            pairs = [f"{self.key(name)}: {self.write(part, level + 1)}" for name, part in value.items()]
            return self._list(("{", "}"), pairs, level, self.in_braces)
        if isinstance(value, list):
            return self._list(("[", "]"), [self.write(part, level + 1) for part in value], level)
        return self.words[value] if value is None or isinstance(value, bool) else repr(value)

    def _list(self, brackets: tuple[str, str], parts: list[str], level: int, inside: str = "") -> str:
        if not parts:
            return "".join(brackets)
        room = LINE_CHARS - len(self.indent) * level
        if not any("\n" in part for part in parts) and sum(len(part) + 2 for part in parts) <= room:
            return brackets[0] + inside + ", ".join(parts) + inside + brackets[1]
        margin = "\n" + self.indent * level
        return brackets[0] + margin + self.indent + f",{margin}{self.indent}".join(parts) + margin + brackets[1]


def _quoted(text: str, escape: Callable[[str], str]) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(c if c.isprintable() else escape(c) for c in quoted)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _python_escape(character: str) -> str:
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else _json_escape(character)


def json_text(text: str) -> str:
    return _quoted(text, _json_escape).replace("\x7f", "\\u007f")


def python_text(text: str) -> str:
    return _quoted(text, _python_escape).replace("\x7f", "\\u007f")


def _javascript_key(name: str) -> str:
    """Return a key. A quoted or plain `__proto__` would set the prototype."""
    if name == "__proto__":
        return '["__proto__"]'
    return name if IDENTIFIER.fullmatch(name) else json_text(name)


def _python_media(media: Media) -> str:
    content = f"base64.b64encode(Path({python_text(media.file_name)}).read_bytes()).decode()"
    return f"{python_text(media.head)} + {content}" if media.head else content


def _javascript_media(media: Media) -> str:
    content = f'readFileSync({json_text(media.file_name)}).toString("base64")'
    return f"{json_text(media.head)} + {content}" if media.head else content


def _json_media(media: Media) -> str:
    return f'{json_text(media.head)[:-1]}\0{media.file_name}\0"'


PYTHON = Notation({None: "None", True: "True", False: "False"}, python_text, python_text, _python_media, "    ")
JAVASCRIPT = Notation(
    {None: "null", True: "true", False: "false"}, json_text, _javascript_key, _javascript_media, INDENT, in_braces=" "
)
JSON = Notation({None: "null", True: "true", False: "false"}, json_text, json_text, _json_media, INDENT)
