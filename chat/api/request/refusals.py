"""Refusals of the engine in the words of the request: what a request may spell in two ways has one name in the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.api import EngineError

SENTENCE_START = re.compile(r"(?:^|(?<=; ))[a-z][a-z_]*(?:\.[^\s;]+)*")
"""Where a sentence about a field has its dotted path."""


def refusal_renamed(error: EngineError, sent: Callable[[str], str]) -> EngineError:
    """The same error with each path as `sent` gives it."""
    param = None if error.param is None else sent(error.param)
    return type(error)(error.code, sentences_renamed(error.message, sent), param)


def sentences_renamed(message: str, sent: Callable[[str], str]) -> str:
    """Sentences about fields, joined by semicolons, each with its path as `sent` gives it; it leaves other words as they are."""
    return SENTENCE_START.sub(lambda match: sent(match.group()), message)


def refusal_reworded(error: EngineError, values: Mapping[str, Any]) -> EngineError:
    """The same error, naming the field that was sent: the newer name of the token limit, the older ones of tools."""
    return error if error.param is None else refusal_renamed(error, lambda path: _sent_name(path, values))


def _sent_name(param: str, values: Mapping[str, Any]) -> str:
    if param == "max_tokens" and values["max_completion_tokens"] is not None:
        return "max_completion_tokens"
    if not values["functions"]:
        return param
    if param == "tool_choice":
        return "function_call"
    return re.sub(r"^tools(\.\d+)?(\.function)?(?=\.|$)", r"functions\1", param)
