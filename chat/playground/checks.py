"""Check a constraint that a user is writing, before it is sent with a request.

The engine reads it in a process of its own, which is killed beyond its time. Other requests go on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

from chat.engine_check import ROOT
from chat.errors import ApiError

logger = logging.getLogger(__name__)

MODULE = "engine.structured.check"
JSON_KINDS = ("json_schema", "choice", "tool_parameters")
KINDS = (*JSON_KINDS, "grammar", "regex")
MAX_TEXT_BYTES = 256 * 1024
MAX_AT_ONCE = 2
CHECK_S = 15.0
"""The time of one check, and of the wait for a place. A grammar that only xgrammar follows loads torch in it."""

_places = asyncio.Semaphore(MAX_AT_ONCE)


async def constraint_check(*, kind: str, value: Any, text: str | None) -> bytes:
    """Return the JSON of the answer. Raises ApiError for what cannot be checked, or not in time."""
    question = json.dumps({"kind": kind, "source": constraint_source(kind, value), "text": text}).encode()
    try:
        await asyncio.wait_for(_places.acquire(), CHECK_S)
    except TimeoutError:
        raise ApiError("overloaded", "Other checks take all places at the moment; try again shortly.") from None
    try:
        return await _answer(question)
    finally:
        _places.release()


def constraint_source(kind: str, value: Any) -> str:
    """Return the text that the engine reads. Of JSON either the text or the value may be given. Raises ApiError."""
    if isinstance(value, str):
        return value
    if kind not in JSON_KINDS:
        raise ApiError("invalid_type", f"value must be a string for the kind {kind}", "value")
    return json.dumps(value)


async def _answer(question: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE),
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        answer, _ = await asyncio.wait_for(process.communicate(question), CHECK_S)
    except TimeoutError:
        message = f"value takes longer than {CHECK_S:g} s to check; make it simpler, or try again on a quieter machine"
        raise ApiError("invalid_value", message, "value") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        logger.warning("A check of a constraint ended with code %d", process.returncode)
        message = "value ended the process that checked it, most likely for want of memory; make it simpler"
        raise ApiError("invalid_value", message, "value")
    return answer
