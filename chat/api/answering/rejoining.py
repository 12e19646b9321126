"""Another reader of a run that goes on without its first one, or has ended not long ago."""

from __future__ import annotations

from django.conf import settings

from chat.access.keys import Caller
from chat.errors import engine_api_error
from chat.generation.completions import RunReader, run_attach
from engine.api import Admitted, EngineError


async def run_rejoin(run_id: str, caller: Caller) -> tuple[RunReader, Admitted] | None:
    """A reader, past the admission; None where there is nothing to read any more. Raises ApiError. Whoever gets it leaves it."""
    try:
        attached = await run_attach(run_id=run_id, caller=caller)
        if attached is None:
            return None
        reader, _ = attached
        try:
            return reader, await reader.first(timeout_s=settings.LIGHTCONE_QUEUE_TIMEOUT_S)
        except BaseException:
            reader.leave()
            raise
    except EngineError as error:
        raise engine_api_error(error) from None
