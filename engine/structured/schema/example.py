"""Make a small value for a JSON Schema, to show what an answer may look like.

It follows keywords one by one, and does not prove that the value satisfies all of them together: the caller checks it.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import (
    CharSet,
    Either,
    Expression,
    Range,
    Repeat,
    Rule,
    Sequence,
    Text,
    inverted,
)
from engine.structured.regex.reader import read_regex
from engine.structured.schema.check import BOUNDS
from engine.structured.schema.references import References

LEVELS = (4, 8, 16, 32)
"""How deep a value is looked for, the shallow ones first: a branch that recurs comes first in many schemas."""
MAX_STEPS = 2_000
"""Schemas that are looked at for each. Branches that recur could otherwise be tried without end."""
OF_FORMAT = {
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "date-time": "2026-01-01T12:00:00Z",
    "duration": "P1D",
    "email": "ann@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
TYPE_OF_KEYWORD = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "minProperties", "patternProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("pattern", "format", "minLength", "maxLength"), "string"),
    **dict.fromkeys((*BOUNDS, "multipleOf"), "number"),
}
PREFERRED = "a0 -A"
"""Characters that are taken where a set has them."""

Schema = dict[str, Any]


class NoExample(Exception):
    """No value was found."""


def example_value(schema: Any, limits: StructuredLimits, *, heeds_suggestions: bool) -> Any:
    """Return a value for a checked schema: its required properties, the fewest items, the first branches.

    With `heeds_suggestions` it takes values from `default` and `examples`, which need not be valid. Raises NoExample.
    """
    for levels in LEVELS:
        with contextlib.suppress(NoExample):
            return _Maker(References(schema, ""), limits, heeds_suggestions, levels).value(schema, 0)
    raise NoExample


class _Maker:
    def __init__(
        self, references: References, limits: StructuredLimits, heeds_suggestions: bool, max_levels: int
    ) -> None:
        self._references = references
        self._limits = limits
        self._heeds_suggestions = heeds_suggestions
        self._max_levels = max_levels
        self._num_steps = 0

    def value(self, schema: Any, level: int) -> Any:
        self._num_steps += 1
        if level > self._max_levels or self._num_steps > MAX_STEPS or schema is False:
            raise NoExample
        if schema is True:
            return None
        if "$ref" in schema:
            target = self._references.resolve(schema["$ref"])
            return self.value(_both({name: schema[name] for name in schema if name != "$ref"}, target), level + 1)
        if "allOf" in schema:
            whole = {name: schema[name] for name in schema if name != "allOf"}
            for part in schema["allOf"]:
                whole = _both(whole, self._references.target(part))
            return self.value(whole, level + 1)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                rest = {other: schema[other] for other in schema if other != name}
                return self._first([_both(rest, branch) for branch in schema[name]], level)
        return self._plain(schema, level)

    def _first(self, branches: list[Any], level: int) -> Any:
        """Return a value of the first branch that has one."""
        for branch in branches:
            try:
                return self.value(branch, level + 1)
            except NoExample:
                continue
        raise NoExample

    def _plain(self, schema: Schema, level: int) -> Any:
        if "const" in schema:
            return schema["const"]
        suggested = [schema["default"]] if "default" in schema else []
        suggested += schema["examples"] if isinstance(schema.get("examples"), list) else []
        if suggested and self._heeds_suggestions:
            return suggested[0]
        if "enum" in schema:
            return schema["enum"][0]
        types = schema.get("type") or next(
            (TYPE_OF_KEYWORD[name] for name in schema if name in TYPE_OF_KEYWORD), "null"
        )
        match types[0] if isinstance(types, list) else types:
            case "object":
                return self._object(schema, level)
            case "array":
                first, others = schema.get("prefixItems", []), schema.get("items", True)
                schemas = [first[at] if at < len(first) else others for at in range(int(schema.get("minItems", 0)))]
                return [self.value(item, level + 1) for item in schemas]
            case "string":
                return self._string(schema)
            case "number" | "integer" as kind:
                return _number(schema, is_whole=kind == "integer")
            case "boolean":
                return False
            case _:
                return None

    def _object(self, schema: Schema, level: int) -> Schema:
        """Return an object with its properties in the order of the schema, as answers have them."""
        properties, required = schema.get("properties", {}), schema.get("required", [])
        optional = [name for name in properties if name not in required]
        chosen = {*required, *optional[: max(0, int(schema.get("minProperties", 0)) - len(required))]}
        names = [name for name in properties if name in chosen] + [name for name in required if name not in properties]
        others = schema.get("additionalProperties", True)
        return {name: self.value(properties.get(name, others), level + 1) for name in names}

    def _string(self, schema: Schema) -> str:
        if schema.get("format") in OF_FORMAT:
            return OF_FORMAT[schema["format"]]
        text = ""
        if schema.get("pattern"):
            text = shortest_text(read_regex(schema["pattern"], self._limits, "", searches=True))
        return text + PREFERRED[0] * (int(schema.get("minLength", 0)) - len(text))


def shortest_text(expression: Expression) -> str:
    """Return a short text of a regular expression. Raises NoExample."""
    match expression:
        case Text(text):
            return text
        case CharSet(ranges, properties, is_negated):
            return _character(inverted(ranges) if is_negated else ranges, properties)
        case Sequence(items):
            return "".join(map(shortest_text, items))
        case Either(items):
            return min(map(shortest_text, items), key=len)
        case Repeat(item, least, _):
            return shortest_text(item) * least if least else ""
        case Rule():
            raise NoExample


def _character(ranges: tuple[Range, ...], properties: tuple[str, ...]) -> str:
    for character in PREFERRED:
        if any(first <= ord(character) <= last for first, last in ranges):
            return character
    if not ranges:
        return PREFERRED[-1 if any("Lu" in name for name in properties) else 0]
    return chr(next((max(first, 0x21) for first, last in ranges if last >= 0x21), ranges[0][0]))


def _number(schema: Schema, *, is_whole: bool) -> int | float:
    """Return the number nearest to 0 from above, or the largest one below it."""
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    step = schema.get("multipleOf", 1)
    number = math.ceil(low / step) * step if low > 0 else math.floor(high / step) * step if high < 0 else 0
    excluded = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    number += step if number == excluded[0] else 0
    number -= step if number == excluded[1] else 0
    is_between = low <= number <= high and number not in excluded
    if not is_between and not is_whole and math.isfinite(low) and math.isfinite(high):
        return float(low + high) / 2
    return int(number) if number == int(number) else number


def _both(first: Any, second: Any) -> Any:
    """Return one schema for two that must hold together. Of keywords that cannot be joined it takes the first's."""
    if isinstance(first, bool) or isinstance(second, bool):
        return False if first is False or second is False else second if first is True else first
    joined = {**second, **first}
    for name in ("properties", "patternProperties"):
        if name in first and name in second:
            shared = {key: _both(value, second[name].get(key, True)) for key, value in first[name].items()}
            joined[name] = shared | {key: value for key, value in second[name].items() if key not in shared}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    if "allOf" in first and "allOf" in second:
        joined["allOf"] = [*first["allOf"], *second["allOf"]]
    return joined
