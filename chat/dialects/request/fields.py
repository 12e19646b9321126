"""DRF fields with the exact coercions of the request schema, which are wider than JSON's and narrower than DRF's.

A field never sees what is absent or, unless `nullable` is off, null: both give its default. Problems are raised as
ValidationError whose text goes on after the field's name ("must be at least 1, got 0"); `schema.py` puts the path before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,64}(\.0{0,64})?", re.ASCII)
NUMBER_TEXT = re.compile(r"[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})", re.ASCII)
TRUE_WORDS = frozenset({"true", "1", "yes", "on", "t", "y"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", "f", "n"})
MAX_ECHO_CHARS = 200


def echo(value: Any) -> str:
    """A value as an error message may show it: short, and never a non-finite number."""
    text = repr(value) if isinstance(value, str | bool | int | float) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= MAX_ECHO_CHARS else text[: MAX_ECHO_CHARS - 1] + "…"


def refuse(code: str, message: str, path: str = "") -> ValidationError:
    """The error to raise; `path` leads from the field to the part of it that is at fault ("3", "0.name")."""
    detail: Any = [ErrorDetail(message, code)]
    return ValidationError({path: detail} if path else detail)


class RequestField(serializers.Field):
    """A field of the request. `nullable` false: null is refused, as the published schema types the field without it."""

    json_schema: dict[str, Any] = {}

    def __init__(self, *, default: Any = None, nullable: bool = True, help_text: str = "") -> None:
        super().__init__(required=False, allow_null=nullable, help_text=help_text)
        self.default_value = default
        self.nullable = nullable

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestField:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def get_value(self, dictionary: dict[str, Any]) -> Any:
        return dictionary.get(self.field_name, serializers.empty)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if data is serializers.empty:
            return self.default_value
        if data is None:
            if not self.nullable:
                raise refuse("invalid_type", "must not be null")
            return self.default_value
        return self.to_internal_value(data)

    def schema_object(self) -> dict[str, Any]:
        """The field in OpenAPI's words."""
        schema = dict(self.json_schema)
        if self.nullable and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
        if self.default_value is not None:
            schema["default"] = self.default_value
        return schema


def integer_read(value: Any, *, accepts_strings: bool = True) -> int:
    """An int64 from an integer, a whole float, a boolean or a decimal string; raises ValidationError."""
    if isinstance(value, str) and accepts_strings and INTEGER_TEXT.fullmatch(value):
        number = int(value.partition(".")[0])
    elif isinstance(value, bool | int) or isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        raise refuse("invalid_type", f"must be an integer, got {echo(value)}")
    if not INT64_MIN <= number <= INT64_MAX:
        raise refuse("invalid_value", "must fit into 64 bits")
    return number


def number_read(value: Any) -> float:
    """A finite float from a number, a boolean or a plain decimal string; raises ValidationError."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and NUMBER_TEXT.fullmatch(value)):
        number = float(value)
        if math.isfinite(number):
            return number
        raise refuse("invalid_value", "must be a finite number")
    raise refuse("invalid_type", f"must be a number, got {echo(value)}")


def boolean_read(value: Any) -> bool:
    """A boolean from true, false, 1, 0 or their words; raises ValidationError."""
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


class Integer(RequestField):
    """An int64 within `minimum`..`maximum`."""

    def __init__(
        self, *, minimum: int = INT64_MIN, maximum: int = INT64_MAX, accepts_strings: bool = True, default: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(default=default, **kwargs)
        self.minimum, self.maximum, self.accepts_strings = minimum, maximum, accepts_strings
        self.json_schema = {"type": "integer", "format": "int64"}
        if minimum > INT64_MIN:
            self.json_schema["minimum"] = minimum
        if maximum < INT64_MAX:
            self.json_schema["maximum"] = maximum

    def to_internal_value(self, data: Any) -> int:
        number = integer_read(data, accepts_strings=self.accepts_strings)
        if number < self.minimum:
            raise refuse("invalid_value", f"must be at least {self.minimum}, got {number}")
        if number > self.maximum:
            raise refuse("invalid_value", f"must be at most {self.maximum}, got {number}")
        return number


class Number(RequestField):
    """A finite number within `minimum`..`maximum`; `above`: greater than that, not equal."""

    def __init__(
        self, *, minimum: float | None = None, maximum: float | None = None, above: float | None = None, default: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(default=default, **kwargs)
        self.minimum, self.maximum, self.above = minimum, maximum, above
        bounds = {"minimum": minimum, "maximum": maximum, "exclusiveMinimum": above}
        self.json_schema = {"type": "number", **{word: bound for word, bound in bounds.items() if bound is not None}}

    def to_internal_value(self, data: Any) -> float:
        number = number_read(data)
        if self.minimum is not None and number < self.minimum:
            raise refuse("invalid_value", f"must be at least {self.minimum:g}, got {number:g}")
        if self.above is not None and number <= self.above:
            raise refuse("invalid_value", f"must be greater than {self.above:g}, got {number:g}")
        if self.maximum is not None and number > self.maximum:
            raise refuse("invalid_value", f"must be at most {self.maximum:g}, got {number:g}")
        return number


class Boolean(RequestField):
    json_schema = {"type": "boolean"}

    def to_internal_value(self, data: Any) -> bool:
        return boolean_read(data)


class Text(RequestField):
    """A string of at most `max_chars` characters. `is_label`: NUL characters are refused. `pattern`: the whole string matches it."""

    def __init__(
        self,
        *,
        max_chars: int | None = None,
        is_label: bool = False,
        pattern: str = "",
        choices: tuple[str, ...] = (),
        default: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(default=default, **kwargs)
        self.max_chars, self.is_label, self.choices = max_chars, is_label, choices
        self.pattern = re.compile(pattern, re.ASCII) if pattern else None
        self.json_schema = {"type": "string"}
        if max_chars is not None:
            self.json_schema["maxLength"] = max_chars
        if pattern:
            self.json_schema["pattern"] = f"^{pattern}$"
        if choices:
            self.json_schema["enum"] = list(choices)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise refuse("invalid_type", f"must be a string, got {echo(data)}")
        if self.max_chars is not None and len(data) > self.max_chars:
            raise refuse("invalid_value", f"must be at most {self.max_chars} characters long, got {len(data)}")
        if self.is_label and "\0" in data:
            raise refuse("invalid_value", "must not contain NUL characters")
        if self.pattern is not None and not self.pattern.fullmatch(data):
            raise refuse("invalid_value", f"must match {self.pattern.pattern}, got {echo(data)}")
        if self.choices and data not in self.choices:
            raise refuse("invalid_value", f"must be one of {', '.join(self.choices)}; got {echo(data)}")
        return data


class Array(RequestField):
    """A list of at most `max_items`; `read` coerces one item or raises ValidationError. Work stops at the first bad item."""

    def __init__(
        self,
        read: Callable[[Any], Any] | None = None,
        *,
        item_schema: dict[str, Any] | None = None,
        max_items: int | None = None,
        default: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(default=default, **kwargs)
        self.read, self.max_items = read, max_items
        self.json_schema = {"type": "array", "items": item_schema or {}}
        if max_items is not None:
            self.json_schema["maxItems"] = max_items

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            raise refuse("invalid_type", f"must be an array, got {echo(data)}")
        if self.max_items is not None and len(data) > self.max_items:
            raise refuse("invalid_value", f"must have at most {self.max_items} items, got {len(data)}")
        if self.read is None:
            return data
        items = []
        for index, item in enumerate(data):
            try:
                items.append(self.read(item))
            except ValidationError as error:
                raise ValidationError({str(index): error.detail}) from None
        return items


class Object(RequestField):
    """A JSON object, taken as it is."""

    json_schema = {"type": "object", "additionalProperties": True}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise refuse("invalid_type", f"must be an object, got {echo(data)}")
        return data


class AnyJson(RequestField):
    """Any value; `cross_field.py` has looked at its shape."""

    def to_internal_value(self, data: Any) -> Any:
        return data


class NotYet(RequestField):
    """A known field whose type is checked but whose wish cannot be granted yet.

    Values that ask for nothing pass and are dropped: null, the default, [] and {}, and what `asks_nothing` accepts.
    """

    def __init__(
        self, inner: RequestField, asks_nothing: Callable[[Any], bool] | None = None, *, reason: str = "is not supported yet"
    ) -> None:
        super().__init__(default=inner.default_value, nullable=inner.nullable, help_text=inner.help_text)
        self.inner, self.asks_nothing, self.reason = inner, asks_nothing, reason
        self.json_schema = inner.json_schema

    def to_internal_value(self, data: Any) -> Any:
        value = self.inner.to_internal_value(data)
        if value == self.default_value or value in ([], {}) or (self.asks_nothing is not None and self.asks_nothing(value)):
            return self.default_value
        raise refuse("unsupported_parameter", self.reason)
