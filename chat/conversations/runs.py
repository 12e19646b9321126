"""What runs of the playground have to do with turns: their names, and how a turn ends that is the answer of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from django.conf import settings

from chat.access.keys import Caller
from chat.api.answering.streaming import ending_check
from chat.api.dialect import AnswerHead
from chat.conversations.models import TurnState
from chat.errors import ApiError, api_error
from chat.usage.prices import run_cost
from engine.api import Admitted, ChoiceFinished, Completed, Delta, EngineError, Event, Outcome, ToolCallDelta, Usage

RUN_NAME = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
"""The page's own name of a run, which it uses once."""
LOST = {"code": "not_resumable", "message": "The answer is lost: its run never began, or left no trace.", "param": None}


def run_name_read(value: Any) -> str:
    """Return the name that the page has given to a run. Raises ApiError."""
    if not isinstance(value, str) or not RUN_NAME.fullmatch(value):
        raise ApiError("invalid_value", "id must be a string of 1 to 64 letters, digits and hyphens", "id")
    return value


def run_public_id(caller: Caller, run_name: str) -> str:
    """Return the id that finds a run again, for its user only, and not over the API, whose ids hold no slash."""
    return f"playground/{caller.tenant}/{run_name}"


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """The end of a turn: its state, one of TurnState, and what is added to its body."""

    state: str
    body: dict[str, Any] = field(default_factory=dict)


def lost_ending() -> TurnEnding:
    return TurnEnding(str(TurnState.FAILED), {"error": LOST})


def run_ending(head: AnswerHead, events: Iterable[Event]) -> TurnEnding:
    """Return the end of a turn from the head of its answer and all events of its run.

    The content is an answer as the page keeps it; what came before a failure is part of it.
    """
    choices = [_Choice(head.echo) for _ in range(head.num_choices)]
    seed = None
    for event in events:
        payload = event.payload
        if isinstance(payload, Admitted):
            seed = payload.seed
        elif isinstance(payload, Delta | ChoiceFinished):
            choices[payload.choice].feed(payload, with_reasoning=head.includes_reasoning)
        elif isinstance(payload, Completed) and payload.outcome in (Outcome.FINISHED, Outcome.STOPPED):
            facts = {"outcome": payload.outcome, "usage": asdict(payload.usage), "timings": timings(payload)}
            return TurnEnding(str(TurnState.ENDED), {"content": _content(choices), **facts, "seed": seed})
        else:
            try:
                ending_check(event)
            except (ApiError, EngineError) as failure:
                error = api_error(failure)
                fields = {"message": error.message, "code": error.code, "param": error.param}
                return TurnEnding(str(TurnState.FAILED), {"content": _content(choices), "error": fields})
    return TurnEnding(str(TurnState.FAILED), {"content": _content(choices), "error": LOST})


class _Choice:
    """A choice of an answer that grows."""

    def __init__(self, echo: str) -> None:
        self._texts, self._reasoning = [echo], [""]
        self._calls: dict[int, dict[str, str]] = {}
        self._num_tokens = 0
        self._end: dict[str, Any] = {}

    def feed(self, payload: Delta | ChoiceFinished, *, with_reasoning: bool) -> None:
        self._texts.append(payload.text)
        if with_reasoning:
            self._reasoning.append(payload.reasoning)
        for piece in payload.tool_calls:
            self._feed_call(piece)
        if isinstance(payload, Delta):
            self._num_tokens += len(payload.token_ids)
        else:
            stop = {} if payload.stop_reason is None else {"stop": payload.stop_reason}
            self._end = {"finish_reason": payload.reason, "tokens": self._num_tokens, **stop}

    def _feed_call(self, piece: ToolCallDelta) -> None:
        call = self._calls.setdefault(piece.index, {"id": piece.id, "name": piece.name, "arguments": ""})
        call["arguments"] += piece.arguments

    def dump(self) -> dict[str, Any]:
        calls = [self._calls[index] for index in sorted(self._calls)]
        return {
            "content": "".join(self._texts),
            "reasoning": "".join(self._reasoning),
            "calls": calls,
            **self._end,
        }


def _content(choices: Iterable[_Choice]) -> dict[str, Any]:
    return {"choices": [choice.dump() for choice in choices], "shown": 0}


def cost_of(*, model: str, usage: Usage) -> dict[str, str] | None:
    """Return what a run has cost by the present prices, as the page shows it and turns keep it; None without prices."""
    cost = run_cost(model=model, usage=usage)
    return None if cost is None else {"amount": f"{cost.normalize():f}", "currency": settings.LIGHTCONE_CURRENCY}


def timings(completed: Completed) -> dict[str, float | None]:
    """Return the seconds in the queue, from its end and from arrival to the first token, and to the end; the rate."""
    arrived, started = completed.timings.arrived_at, completed.timings.started_at
    first, end = completed.timings.first_token_at, completed.timings.ended_at
    num_gaps = completed.usage.completion_tokens - 1
    rate = None
    if first is not None and end is not None and end > first and num_gaps > 0:
        rate = num_gaps / (end - first)
    return {
        "queue_s": None if started is None else max(0.0, started - arrived),
        "prompt_s": None if first is None or started is None else max(0.0, first - started),
        "first_token_s": None if first is None else first - arrived,
        "total_s": None if end is None else end - arrived,
        "tokens_per_s": rate,
    }
