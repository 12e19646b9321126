"""JSON Schemas in a short notation, close to that of TypeScript.

    Echo = {
        id: string "echo- and a number."; text, language: string; kind: 'plain' | 'loud' | null;
        words: [Word]; counts: {*: integer}; note?: string | null; ...page
    }

`Echo` becomes a component, and `Word` refers to one. Words in lower case are pieces, which stand where they are used;
`...page` stands for the properties of one. A property is required unless its name ends in `?`, and `*` alone is that
of any name. A text in double quotes describes what is before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TOKENS = re.compile(r"""\s*("[^"]*"|'[^']*'|\w+|\.\.\.|[={}\[\]:;,|?*])""")


class _Reader:
    """One pass over a text. `pieces` grows by those that the text defines."""

    def __init__(self, text: str, pieces: dict[str, Schema]) -> None:
        if unread := TOKENS.sub("", text).strip():
            raise ValueError(f"not of the notation: {unread}")
        self.pieces = pieces
        self._tokens = TOKENS.findall(text)[::-1]

    def definitions(self) -> Iterator[tuple[str, Schema]]:
        while self._tokens:
            name = self._tokens.pop()
            self._expect("=")
            schema = self.type()
            if name[0].islower():
                self.pieces[name] = schema
            else:
                yield name, schema

    def type(self) -> Schema:
        members = [self._member()]
        while self._skip("|"):
            members.append(self._member())
        schema = members[0] if len(members) == 1 else _union(members)
        if self._tokens and self._tokens[-1].startswith('"'):
            schema = {**schema, "description": self._tokens.pop()[1:-1]}
        return schema

    def _member(self) -> Schema:
        token = self._tokens.pop()
        if token == "{":
            return self._object()
        if token == "[":
            items = self.type()
            self._expect("]")
            return array(items)
        if token.startswith("'"):
            return one_of(token[1:-1])
        return self.pieces[token] if token[0].islower() else ref(token)

    def _object(self) -> Schema:
        if self._skip("*"):
            self._expect(":")
            values = self.type()
            self._expect("}")
            return {"type": "object", "additionalProperties": values}
        schema: Schema = {"type": "object", "properties": {}, "required": []}
        while not self._skip("}"):
            if self._skip("..."):
                piece = self.pieces[self._tokens.pop()]
                schema["properties"] |= piece["properties"]
                schema["required"] += piece["required"]
            else:
                self._properties(schema)
            self._skip(";")
        return schema

    def _properties(self, schema: Schema) -> None:
        """Add the properties up to the next semicolon, which have one type."""
        names: dict[str, bool] = {}
        while not names or self._skip(","):
            name = self._tokens.pop()
            names[name] = not self._skip("?")
        self._expect(":")
        schema["properties"] |= dict.fromkeys(names, self.type())
        schema["required"] += [name for name, is_required in names.items() if is_required]

    def _skip(self, token: str) -> bool:
        if not self._tokens or self._tokens[-1] != token:
            return False
        self._tokens.pop()
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise ValueError(f"expected {token} before {' '.join(self._tokens[:-9:-1])}")


def _union(members: list[Schema]) -> Schema:
    """Return the schema of any of `members`, as one of several types where that says the same."""
    is_choice = all("enum" in member or member == PIECES["null"] for member in members)
    num_detailed = sum(member.keys() != {"type"} for member in members)
    if not is_choice and (num_detailed > 1 or any(member.keys() & {"enum", "$ref", "oneOf"} for member in members)):
        return {"oneOf": members}
    types = list(dict.fromkeys(member["type"] for member in members))
    union = {name: value for member in members for name, value in member.items()}
    union["type"] = types[0] if len(types) == 1 else types
    if is_choice:
        union["enum"] = [value for member in members for value in member.get("enum", [None])]
    return union


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def one_of(*values: str) -> Schema:
    """Return the schema of one of some strings."""
    return {"type": "string", "enum": list(values)}


def components(text: str, **pieces: Schema) -> dict[str, Schema]:
    """Return the components that a text defines, by name."""
    return dict(_Reader(text, PIECES | pieces).definitions())


def shape(text: str, **pieces: Schema) -> Schema:
    """Return the schema of one type."""
    return _Reader(text, PIECES | pieces).type()


PIECES: dict[str, Schema] = {
    **{word: {"type": word} for word in ("string", "integer", "number", "boolean", "null", "object")},
    "binary": {"type": "string", "format": "binary"},
    "instant": {"type": "string", "format": "date-time"},
    "seconds": {"type": "integer", "description": "Unix seconds."},
}
"""Pieces that all texts may use."""
PIECES |= {
    "fault": shape('string | null "The dotted path of the field at fault."'),
    "items": shape("[{type?: string}]"),
    "page": shape("{object: 'list'; first_id, last_id: string | null; has_more: boolean}"),
}
