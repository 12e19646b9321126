"""Checks the arguments of a logits processor, before a request is admitted and again in the core. Pure Python.

An omitted argument is taken from the request's free value (vllm_xargs) of the same name, if there is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import Json, ProcessorCall
from engine.messages import ProcessorParameter, ProcessorSpec

MAX_ITEMS = 65_536
"""The most numbers in one argument, over all nested lists."""

MAX_TEXT_CHARS = 65_536
MAX_ECHO_CHARS = 200


class _Refusal(ValueError):
    """The value does not fit the parameter."""


def bind_arguments(
    spec: ProcessorSpec, call: ProcessorCall, free: dict[str, Json], logits_width: int, path: str = "logits_processors"
) -> dict[str, Json]:
    """Return the checked value of each argument that the request gives at `path`. Raises RequestError."""
    names = [parameter.name for parameter in spec.parameters]
    if len(call.args) > len(names):
        message = (
            f"the logits processor {spec.name!r} takes at most {len(names)} positional arguments "
            f"({_listed(names)}), got {len(call.args)}"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message, f"{path}.args")
    given = {
        name: (value, f"{path}.args.{index}") for index, (name, value) in enumerate(zip(names, call.args, strict=False))
    }
    for name, value in call.kwargs.items():
        if name not in names:
            message = f"the logits processor {spec.name!r} has no argument {name[:200]!r}; it takes {_listed(names)}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, f"{path}.kwargs.{name[:200]}")
        if name in given:
            message = (
                f"the argument {name!r} of the logits processor {spec.name!r} is given twice; "
                "give it in args or in kwargs"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, f"{path}.kwargs.{name}")
        given[name] = (value, f"{path}.kwargs.{name}")
    bound: dict[str, Json] = {}
    for parameter in spec.parameters:
        value, param = given.get(parameter.name) or (free.get(parameter.name), f"vllm_xargs.{parameter.name}")
        if value is None and parameter.is_required:
            wanted = _wanted(parameter, logits_width)
            message = f"the logits processor {spec.name!r} needs the argument {parameter.name!r}: {wanted}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, f"{path}.kwargs.{parameter.name}")
        if value is not None:
            bound[parameter.name] = _read(spec, parameter, value, logits_width, param)
    return bound


def _read(spec: ProcessorSpec, parameter: ProcessorParameter, value: Json, logits_width: int, param: str) -> Json:
    try:
        return _READERS[parameter.kind](value, parameter, logits_width)
    except _Refusal:
        wanted = _wanted(parameter, logits_width)
        message = (
            f"the argument {parameter.name!r} of the logits processor {spec.name!r} must be {wanted}, "
            f"got {_shown(value)}"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message, param) from None


def _read_int(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refusal
    return _within(value, parameter)


def _read_float(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Refusal
    try:
        number = float(value)
    except OverflowError:
        raise _Refusal from None
    if not math.isfinite(number):
        raise _Refusal
    return _within(number, parameter)


def _read_bool(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if value not in (0, 1):  # free values have no booleans
        raise _Refusal
    return bool(value)


def _read_str(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
        raise _Refusal
    return value


def _read_int_list(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise _Refusal
    return [_read_int(item, parameter, logits_width) for item in value]


def _read_token_ids(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    token_ids = _read_int_list(value, ProcessorParameter(parameter.name, "int_list", 0, logits_width - 1), logits_width)
    if not token_ids:
        raise _Refusal
    return token_ids


def _read_token_id_lists(value: Json, parameter: ProcessorParameter, logits_width: int) -> Json:
    if (
        not isinstance(value, list)
        or not value
        or sum(len(item) if isinstance(item, list) else 1 for item in value) > MAX_ITEMS
    ):
        raise _Refusal
    return [_read_token_ids(item, parameter, logits_width) for item in value]


_READERS: dict[str, Callable[[Json, ProcessorParameter, int], Json]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "str": _read_str,
    "int_list": _read_int_list,
    "token_ids": _read_token_ids,
    "token_id_lists": _read_token_id_lists,
}
PARAMETER_KINDS = frozenset(_READERS)


def _within(value: float, parameter: ProcessorParameter) -> float:
    least, most = parameter.minimum, parameter.maximum
    if (least is not None and value < least) or (most is not None and value > most):
        raise _Refusal
    return value


def _wanted(parameter: ProcessorParameter, logits_width: int) -> str:
    """Describe the values that the parameter takes."""
    noun = {
        "int": "an integer",
        "float": "a number",
        "bool": "true or false",
        "str": f"a string of at most {MAX_TEXT_CHARS} characters",
        "int_list": f"an array of at most {MAX_ITEMS} integers",
        "token_ids": f"a non-empty array of at most {MAX_ITEMS} token ids from 0 to {logits_width - 1}",
        "token_id_lists": f"a non-empty array of non-empty arrays of token ids from 0 to {logits_width - 1}, "
        f"at most {MAX_ITEMS} together",
    }[parameter.kind]
    least, most = parameter.minimum, parameter.maximum
    if least is not None and most is not None:
        return f"{noun} from {least:g} to {most:g}"
    if least is not None:
        return f"{noun} of at least {least:g}"
    return noun if most is None else f"{noun} of at most {most:g}"


def _shown(value: Json) -> str:
    """Show the value as JSON, as the caller wrote it; strings in single quotes, as in other errors."""
    return (repr(value) if isinstance(value, str) else json.dumps(value))[:MAX_ECHO_CHARS]


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "no arguments"
