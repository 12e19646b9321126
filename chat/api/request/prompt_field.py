"""The field that holds one prompt or several, each a text or a list of token ids. Used for `prompt` and for `input`."""

from __future__ import annotations

from functools import partial
from typing import Any

from chat.api.openapi.notation import TEXT, array
from chat.api.request.fields import RequestField, echo, integer_read, read_at, refuse
from chat.api.request.objects import TOKEN_ID
from engine.api import RawPrompt

FORMS = "a string, an array of strings, an array of token ids, or an array of such arrays"
TOKEN_IDS = {**array(TOKEN_ID), "minItems": 1}


class Prompts(RequestField):
    """One prompt or several. Reads to RawPrompts, whose `param` is the field's name, or `name.3` in a list."""

    missing = f"is required: {FORMS}"

    def __init__(self, *, max_items: int, **kwargs: Any) -> None:
        super().__init__(is_required=True, **kwargs)
        self.max_items = max_items
        several = {**array({"oneOf": [TEXT, TOKEN_IDS]}), "minItems": 1, "maxItems": max_items}
        self.json_schema = {"oneOf": [TEXT, TOKEN_IDS, several]}

    def to_internal_value(self, data: Any) -> list[RawPrompt]:
        name = str(self.field_name)
        if isinstance(data, str):
            return [RawPrompt(text=data, param=name)]
        if not isinstance(data, list):
            raise refuse("invalid_type", f"must be {FORMS}; got {echo(data)}")
        if not data:
            raise refuse("invalid_value", "must not be an empty array; send at least one prompt")
        if _is_number(data[0]):
            return [RawPrompt(token_ids=token_ids_read(data), param=name)]
        if len(data) > self.max_items:
            raise refuse(
                "invalid_value",
                f"must have at most {self.max_items} items, got {len(data)}; send the rest in further requests",
            )
        return [read_at(index, partial(_prompt, f"{name}.{index}"), item) for index, item in enumerate(data)]


def _prompt(param: str, data: Any) -> RawPrompt:
    if isinstance(data, str):
        return RawPrompt(text=data, param=param)
    if not isinstance(data, list):
        raise refuse("invalid_type", f"must be a string or an array of token ids; got {echo(data)}")
    if not data:
        raise refuse("invalid_value", "must hold at least one token id")
    return RawPrompt(token_ids=token_ids_read(data), param=param)


def token_ids_read(data: list[Any]) -> tuple[int, ...]:
    """Return token ids, at least 0 each; fast if all are plain integers. Raises ValidationError."""
    if all(type(item) is int for item in data) and min(data, default=0) >= 0:
        return tuple(data)
    return tuple(read_at(index, _token_id, item) for index, item in enumerate(data))


def _token_id(value: Any) -> int:
    if not _is_number(value):
        raise refuse("invalid_type", f"must be a token id, an integer; got {echo(value)}")
    number = integer_read(value, accepts_strings=False)
    if number < 0:
        raise refuse("invalid_value", f"must be a token id, at least 0, got {number}")
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
