"""End the turns of runs that ended while no page was there to save them.

The maintenance worker does so, without state: SQL has the turns that have begun, and the log of a run outlives its end.
"""

from __future__ import annotations

import logging
from datetime import timedelta

import orjson
from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from chat.api.dialect import AnswerHead
from chat.conversations.models import Turn, TurnState
from chat.conversations.runs import TurnEnding, cost_of, lost_ending, run_ending
from chat.conversations.space import ConversationMissing, QuotaExceeded
from chat.conversations.turns import TurnSent, turn_put, turns_begun
from chat.relay.state.runs import Runs
from engine.api import Usage

logger = logging.getLogger(__name__)

LOST_AFTER = timedelta(minutes=5)
"""A page saves the beginning of a turn just before it starts the run."""
begun_list = database_sync_to_async(turns_begun)


class UnfinishedTurns:
    """The recovery of turns that have begun: `turn` looks at each of them once."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def turn(self) -> int:
        """End the turns whose runs have ended and return how many. Raises RedisError and DatabaseError.

        A turn that cannot be ended is a defect, and keeps no other waiting.
        """
        num_ended = 0
        for row in await begun_list():
            try:
                num_ended += await self._end(row)
            except (RedisError, OSError, DatabaseError):
                raise
            except Exception:
                logger.exception("turn %s of conversation %s cannot be ended", row.pk, row.conversation_id)
        return num_ended

    async def _end(self, row: Turn) -> bool:
        ending = await self._ending(row)
        if ending is not None:
            await database_sync_to_async(turn_end)(row, ending)
        return ending is not None

    async def _ending(self, row: Turn) -> TurnEnding | None:
        """Return the end of a turn, None while its run goes on or may yet begin."""
        found = await self._runs.find_public(row.project_id, row.run_public_id)
        if found is None:
            return lost_ending() if row.created_at < timezone.now() - LOST_AFTER else None
        run_id, context = found
        run = await self._runs.find(run_id)
        if run is not None and not run.has_ended:
            return None
        log = await self._runs.read_whole_log(run_id)
        head = AnswerHead.load(orjson.loads(context))
        ending = run_ending(head, [event for entry in log for event in entry.events()])
        ending.body["request_id"] = run_id
        if "usage" in ending.body:
            model = head.model if run is None else str(run.about["model"])
            cost = await database_sync_to_async(cost_of)(model=model, usage=Usage(**ending.body["usage"]))
            ending.body.update({} if cost is None else {"cost": cost})
        return ending


def turn_end(row: Turn, ending: TurnEnding) -> None:
    """Save the end of a turn; beyond the quota, that it failed. Its page may have been faster."""
    user_id, conversation_id = row.conversation.user_id, row.conversation.public_id
    try:
        turn_put(user_id=user_id, conversation_id=conversation_id, sent=_sent(row, ending))
    except QuotaExceeded as error:
        logger.warning("the end of turn %s does not fit: %s", row.pk, error.message)
        Turn.objects.filter(pk=row.pk, state=TurnState.BEGUN).update(state=TurnState.FAILED)
    except ConversationMissing:
        logger.info("the conversation of turn %s was deleted before its end", row.pk)


def _sent(row: Turn, ending: TurnEnding) -> TurnSent:
    return TurnSent(row.public_id, row.parent, row.role, ending.state, ending.body)
