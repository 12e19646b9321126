"""End the stored answers of runs that ended without their clients and that no client has asked for since.

The maintenance worker does so, without state: SQL has the unfinished answers, and the log of a run outlives its end. An
answer whose run has left no trace was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import orjson
from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.utils.module_loading import import_string
from redis.exceptions import RedisError

from chat.api.stored.services import (
    StoredAnswer,
    StoredState,
    answer_drop,
    answer_end,
    answer_of_run,
    answers_unfinished,
)
from chat.relay.state.runs import LogEntry, Runs
from engine.api import Event

logger = logging.getLogger(__name__)

Ending = tuple[StoredState, bytes] | None
unfinished_list = database_sync_to_async(answers_unfinished)
answer_find = database_sync_to_async(answer_of_run)
answer_write = database_sync_to_async(answer_end)
answer_forget = database_sync_to_async(answer_drop)


class UnfinishedAnswers:
    """The recovery of unfinished answers: `turn` looks at each of them once.

    `endings` are `module:function` by kind of answer, imported when first needed. They end an answer from its request
    and all events of the run, and return None if nothing is to be kept.
    """

    def __init__(self, runs: Runs, endings: Mapping[str, str]) -> None:
        self._runs = runs
        self._endings = endings

    async def turn(self) -> int:
        """End the answers whose runs have ended; return how many. Raises RedisError and DatabaseError.

        An answer that cannot be ended is a defect, and keeps no other waiting.
        """
        num_ended = 0
        for run_id in await unfinished_list():
            found = await self._runs.find(run_id)
            if found is not None and not found.has_ended:
                continue
            log = await self._runs.read_whole_log(run_id) if found is not None else []
            row = await answer_find(run_id=run_id)
            if row is not None:
                num_ended += await self._end_safely(row, log)
        return num_ended

    async def _end_safely(self, row: StoredAnswer, log: list[LogEntry]) -> bool:
        try:
            await self._end(row, [event for entry in log for event in entry.events()])
        except (RedisError, OSError, DatabaseError):
            raise
        except Exception:
            logger.exception("answer %s cannot be ended", row.public_id)
            return False
        return True

    async def _end(self, row: StoredAnswer, events: list[Event]) -> None:
        ending: Ending = import_string(self._endings[row.kind].replace(":", "."))(orjson.loads(row.request), events)
        if ending is None:
            await answer_forget(run_id=row.run_id)
            return
        state, body = ending
        if await answer_write(run_id=row.run_id, state=state, answer=body):
            logger.info("answer %s ended as %s", row.public_id, state)
