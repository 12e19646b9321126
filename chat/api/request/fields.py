"""DRF fields with the coercions of the request schema: wider than JSON's and narrower than DRF's.

An absent field has its default; so has null, unless `nullable` is off. A ValidationError's text continues the sentence
that the field's name begins ("must be at least 1, got 0").
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from chat.errors import ApiError, Problem, problems_error

T = TypeVar("T")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,64}(\.0{0,64})?", re.ASCII)
NUMBER_TEXT = re.compile(r"[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})", re.ASCII)
TRUE_WORDS = frozenset({"true", "1", "yes", "on", "t", "y"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", "f", "n"})
MAX_ECHO_CHARS = 200


def echo(value: Any) -> str:
    """Return a value as JSON for an error message: short, and never a non-finite number."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_ECHO_CHARS else text[: MAX_ECHO_CHARS - 1] + "…"


def refuse(code: str, message: str, path: str = "") -> ValidationError:
    """Return the error to raise. `path` leads from the field to the part at fault ("3", "0.name")."""
    detail: Any = [ErrorDetail(message, code)]
    return ValidationError({path: detail} if path else detail)


def field_problems(detail: Any, path: str = "") -> list[Problem]:
    """Return the leaves of a ValidationError's detail, in order, with their dotted paths."""
    if isinstance(detail, ErrorDetail):
        return [Problem(detail.code, f"{path} {detail}", path)]
    if isinstance(detail, list):
        return [problem for item in detail for problem in field_problems(item, path)]
    named = ((f"{path}.{name}".lstrip(".")[:MAX_ECHO_CHARS], item) for name, item in detail.items())
    return [problem for inner, item in named for problem in field_problems(item, inner)]


def field_read(name: str, read: Callable[[Any], T], value: Any) -> T:
    """Return `read(value)`. Its ValidationError becomes an ApiError for the field `name`."""
    try:
        return read(value)
    except ValidationError as error:
        raise problems_error(field_problems(error.detail, name)) from None


def bad_value(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """Return the error for the field `param`; `message` continues the sentence that it begins."""
    return ApiError(code, f"{param} {message}", param)


class RequestField(serializers.Field):
    """A field of the request. Null is refused if the field is required, or with `nullable=False`.

    With `null_is_absent` the null of a required field counts as absent.
    """

    json_schema: Mapping[str, Any] = {}
    missing = "is required"
    """The refusal of a body without the field."""

    def __init__(
        self,
        help_text: str = "",
        *,
        default: Any = None,
        nullable: bool = True,
        is_required: bool = False,
        null_is_absent: bool = False,
    ) -> None:
        super().__init__(required=is_required, help_text=help_text)
        self.default_value = default
        self.null_is_absent = null_is_absent
        self.nullable = nullable and not is_required

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestField:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def get_value(self, dictionary: dict[str, Any]) -> Any:
        return dictionary.get(self.field_name, serializers.empty)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if data is serializers.empty or (data is None and self.null_is_absent):
            if self.required:
                raise refuse("missing_required_parameter", self.missing)
            return self.default_value
        if data is None:
            if not self.nullable:
                raise refuse("invalid_type", "must not be null")
            return self.default_value
        return self.to_internal_value(data)

    def schema_object(self) -> dict[str, Any]:
        schema = dict(self.json_schema)
        if self.nullable and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
        elif self.nullable and "oneOf" in schema:
            schema["oneOf"] = [*schema["oneOf"], {"type": "null"}]
        if self.default_value is not None:
            schema["default"] = self.default_value
        if self.help_text:
            schema["description"] = self.help_text
        return schema


def integer_read(value: Any, *, accepts_strings: bool = True, accepts_integers_only: bool = False) -> int:
    """Return the int64 of an integer, a whole float, a boolean or a decimal string. Raises ValidationError."""
    if accepts_integers_only and type(value) is not int:
        raise refuse("invalid_type", f"must be a JSON integer, got {echo(value)}")
    if isinstance(value, str) and accepts_strings and INTEGER_TEXT.fullmatch(value):
        number = int(value.partition(".")[0])
    elif isinstance(value, bool | int) or isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        raise refuse("invalid_type", f"must be an integer, got {echo(value)}")
    # NOTE: the JSON parser makes floats of integers beyond 64 bits, so that the float -2^63 may have been less.
    if not INT64_MIN <= number <= INT64_MAX or isinstance(value, float) and number == INT64_MIN:
        raise refuse("invalid_value", "must fit into 64 bits")
    return number


def number_read(value: Any) -> float:
    """Return the finite float of a number, a boolean or a plain decimal string. Raises ValidationError."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and NUMBER_TEXT.fullmatch(value)):
        number = float(value)
        if math.isfinite(number):
            return number
        raise refuse("invalid_value", "must be a finite number")
    raise refuse("invalid_type", f"must be a number, got {echo(value)}")


def boolean_read(value: Any) -> bool:
    """Return the boolean of true, false, 1, 0 or their words. Raises ValidationError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    word = value.lower() if isinstance(value, str) and len(value) <= 5 else ""
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise refuse("invalid_type", f"must be true or false, got {echo(value)}")


def text_read(value: Any) -> str:
    if not isinstance(value, str):
        raise refuse("invalid_type", f"must be a string, got {echo(value)}")
    return value


class Integer(RequestField):
    """An int64 within `minimum`..`maximum`, except `but_not`."""

    def __init__(
        self,
        help_text: str = "",
        *,
        minimum: int = INT64_MIN,
        maximum: int = INT64_MAX,
        but_not: int | None = None,
        accepts_strings: bool = True,
        accepts_integers_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(help_text, **kwargs)
        self.minimum, self.maximum, self.but_not = minimum, maximum, but_not
        self.coercions = {"accepts_strings": accepts_strings, "accepts_integers_only": accepts_integers_only}
        self.json_schema = {"type": "integer", "format": "int64"}
        if minimum > INT64_MIN:
            self.json_schema["minimum"] = minimum
        if maximum < INT64_MAX:
            self.json_schema["maximum"] = maximum
        if but_not is not None:
            self.json_schema["not"] = {"const": but_not}

    def to_internal_value(self, data: Any) -> Any:
        number = integer_read(data, **self.coercions)
        if not self.minimum <= number <= self.maximum:
            raise refuse("invalid_value", f"must be {self._range()}, got {number}")
        if number == self.but_not:
            raise refuse("invalid_value", f"must not be {number}; it must be {self._range()}")
        return number

    def _range(self) -> str:
        if self.minimum > INT64_MIN and self.maximum < INT64_MAX:
            return f"from {self.minimum} to {self.maximum}"
        return f"at least {self.minimum}" if self.minimum > INT64_MIN else f"at most {self.maximum}"


class Number(RequestField):
    """A finite number within `minimum`..`maximum`, and greater than `above`."""

    def __init__(
        self,
        help_text: str = "",
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        above: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(help_text, **kwargs)
        self.minimum, self.maximum, self.above = minimum, maximum, above
        bounds = {"minimum": minimum, "maximum": maximum, "exclusiveMinimum": above}
        self.json_schema = {"type": "number", **{word: bound for word, bound in bounds.items() if bound is not None}}

    def to_internal_value(self, data: Any) -> Any:
        number = number_read(data)
        is_low = self.minimum is not None and number < self.minimum or self.above is not None and number <= self.above
        if is_low or self.maximum is not None and number > self.maximum:
            raise refuse("invalid_value", f"must be {self._range()}, got {_shortest(number)}")
        return number

    def _range(self) -> str:
        bounds = (("greater than", self.above), ("at least", self.minimum), ("at most", self.maximum))
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)


def _shortest(number: float) -> str:
    """Return the number in the fewest digits that identify it: rounded, it could read like the bound."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


class Boolean(RequestField):
    json_schema = {"type": "boolean"}

    def to_internal_value(self, data: Any) -> Any:
        return boolean_read(data)


class Text(RequestField):
    """A string of at most `max_chars` characters and `max_bytes` bytes of UTF-8.

    `is_filled` asks for more than blanks. `is_label` refuses NUL characters. The whole string must match `pattern`.
    `read` checks the rest.
    """

    def __init__(
        self,
        help_text: str = "",
        *,
        max_chars: int | None = None,
        max_bytes: int | None = None,
        is_filled: bool = False,
        is_label: bool = False,
        pattern: str = "",
        choices: tuple[str, ...] = (),
        read: Callable[[str], str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(help_text, **kwargs)
        self.max_chars, self.max_bytes, self.is_filled = max_chars, max_bytes, is_filled
        self.is_label, self.choices, self.read = is_label, choices, read
        self.pattern = re.compile(pattern, re.ASCII) if pattern else None
        self.json_schema = {"type": "string"}
        if max_chars is not None:
            self.json_schema["maxLength"] = max_chars
        if pattern:
            self.json_schema["pattern"] = f"^{pattern}$"
        if choices:
            self.json_schema["enum"] = list(choices)

    def to_internal_value(self, data: Any) -> Any:
        text_read(data)
        if self.max_chars is not None and len(data) > self.max_chars:
            raise refuse("invalid_value", f"must be at most {self.max_chars} characters long, got {len(data)}")
        if self.max_bytes is not None:
            check_bytes(data, self.max_bytes)
        if self.is_filled and not data.strip():
            raise refuse("invalid_value", "must not be empty")
        if self.is_label and "\0" in data:
            raise refuse("invalid_value", "must not contain NUL characters")
        if self.pattern is not None and not self.pattern.fullmatch(data):
            raise refuse("invalid_value", f"must match {self.pattern.pattern}, got {echo(data)}")
        if self.choices and data not in self.choices:
            raise refuse("invalid_value", f"must be one of {', '.join(self.choices)}; got {echo(data)}")
        return data if self.read is None else self.read(data)


def check_bytes(text: str, limit: int) -> None:
    """Raise ValidationError if `text` is longer than `limit` bytes of UTF-8."""
    # NOTE: characters first, so that a text far too long is not encoded.
    num_bytes = len(text) if len(text) > limit else len(text.encode())
    if num_bytes > limit:
        raise refuse("invalid_value", f"must be at most {limit} bytes long, got {num_bytes} or more")


class Array(RequestField):
    """A list of at most `max_items`.

    `read` coerces an item or raises ValidationError; the first bad item ends the work. An empty list is refused with
    the text `if_empty`, where there is one.
    """

    def __init__(
        self,
        read: Callable[[Any], Any] | None = None,
        *,
        item_schema: dict[str, Any] | None = None,
        max_items: int | None = None,
        if_empty: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.read, self.max_items, self.if_empty = read, max_items, if_empty
        self.json_schema = {"type": "array", "items": item_schema or {}}
        if max_items is not None:
            self.json_schema["maxItems"] = max_items
        if if_empty:
            self.json_schema["minItems"] = 1

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, list):
            raise refuse("invalid_type", f"must be an array, got {echo(data)}")
        if self.if_empty and not data:
            raise refuse("invalid_value", self.if_empty)
        if self.max_items is not None and len(data) > self.max_items:
            raise refuse("invalid_value", f"must have at most {self.max_items} items, got {len(data)}")
        return data if self.read is None else [read_at(index, self.read, item) for index, item in enumerate(data)]


def read_at(place: str | int, read: Callable[[Any], T], value: Any) -> T:
    """Return `read(value)`. Its ValidationError gets the path `place` within the field."""
    try:
        return read(value)
    except ValidationError as error:
        raise ValidationError({str(place): error.detail}) from None


def fields_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: field.schema_object() for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field.required],
    }


class Object(RequestField):
    json_schema = {"type": "object", "additionalProperties": True}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise refuse("invalid_type", f"must be an object, got {echo(data)}")
        return data


class Record(Object):
    """An object with known `parts`, each a field. Other keys are ignored. Reads to a dict of all parts."""

    parts: Mapping[str, RequestField] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.json_schema = fields_schema(cls.parts)

    def to_internal_value(self, data: Any) -> Any:
        record = super().to_internal_value(data)
        return {
            name: read_at(name, part.run_validation, record.get(name, serializers.empty))
            for name, part in self.parts.items()
        }
