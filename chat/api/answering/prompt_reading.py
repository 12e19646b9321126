"""Requests that want to know what a prompt becomes, and no answer to it: rendered and tokenised by a worker, without use of the model.

They are runs like others, with a record each and the limits of the key on requests; they use no tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from chat.api.answering.accepting import Accepted, request_start
from chat.api.answering.admission import admission_wait
from chat.api.answering.endings import ending_error
from chat.api.answering.starting import StartedRun, run_start
from chat.api.dialect import RequestReader
from chat.errors import ApiError, engine_api_error
from engine.api import Admitted, EngineError, GenerationRequest


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """What a prompt became. `headers`: the `x-ratelimit-*` lines for the answer; `generation`: the request as the engine got it."""

    values: dict[str, Any]
    generation: GenerationRequest
    admitted: Admitted
    headers: dict[str, str]


async def prompt_read(
    request: HttpRequest, dialect: RequestReader, start: Callable[[Accepted], Awaitable[StartedRun]] = run_start
) -> ReadPrompt:
    """Have the prompt of a request read, whose values say `Task.READ`; raises ApiError."""
    accepted, run = await request_start(request, dialect, start)
    try:
        admitted = await admission_wait(run)
        async for event in run.reader:
            error = ending_error(event)
            if error is not None:
                raise error
        return ReadPrompt(accepted.values, run.generation, admitted, dict(run.reader.headers))
    except EngineError as refusal:
        raise _with_headers(engine_api_error(dialect.reword(refusal, accepted.values)), run) from None
    except ApiError as error:
        raise _with_headers(error, run) from None
    finally:
        run.reader.leave()


def _with_headers(error: ApiError, run: StartedRun) -> ApiError:
    error.extra_headers = run.reader.headers | error.extra_headers
    return error
