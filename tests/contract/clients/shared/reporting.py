"""Shared code of the Python clients' scripts. It imports the standard library alone, for every environment.

A feature is a function under `@feature("group: what")`, plain or asynchronous, that raises on failure. `run()` calls
each in turn and prints a line of JSON for it: {"feature", "passed", "why", "is_impossible"}.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

URL = os.environ["LIGHTCONE_BASE_URL"]
KEY = os.environ["LIGHTCONE_API_KEY"]
MODEL = os.environ["LIGHTCONE_MODEL"]
SCRATCH = os.environ["LIGHTCONE_SCRATCH"]
HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]
LONGEST_WHY = 300
FORCED = "with `tool_choice`: the test model is too small to call a tool by itself"

E = TypeVar("E", bound=Exception)

FEATURES: list[tuple[str, str, Callable[[], object]]] = []


class ImpossibleError(Exception):
    """Raised if the client or the model cannot do this with any server; the text has the reason."""


def feature(name: str, *, note: str = "") -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a feature; `note` is shown in the table if it passed."""

    def take(function: Callable[[], object]) -> Callable[[], object]:
        FEATURES.append((name, note, function))
        return function

    return take


def same(seen: object, expected: object) -> None:
    """Assert equality with a message, as no test runner rewrites these assertions."""
    assert seen == expected, f"{seen!r} is not {expected!r}"


def raised(kind: type[E], call: Callable[..., object], **fields: object) -> E:
    """Return the error of this class that the call ends with."""
    try:
        call(**fields)
    except kind as error:
        return error
    raise AssertionError(f"accepted: {fields}")


def run() -> None:
    for name, note, function in FEATURES:
        line = {"feature": name, "passed": True, "why": note, "is_impossible": False}
        try:
            seen = function()
            if inspect.iscoroutine(seen):
                asyncio.run(seen)
        except ImpossibleError as error:
            line |= {"passed": False, "why": str(error), "is_impossible": True}
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)
            line_number = next(
                (frame.lineno for frame in reversed(where) if frame.filename == function.__code__.co_filename), 0
            )
            why = " ".join(f"line {line_number}: {type(error).__name__}: {error}".split())
            line |= {"passed": False, "why": why[:LONGEST_WHY]}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
