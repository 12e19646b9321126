"""Turn the events of a run into messages for the page, each with the number of its choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from chat.api.answering.streaming import ending_check
from chat.api.dialect import AnswerHead
from chat.generation.completions import RunReader
from engine.api import ChoiceFinished, Completed, Delta, FinishReason, Outcome

Message = dict[str, Any]


async def run_messages(reader: RunReader, head: AnswerHead) -> AsyncIterator[Message]:
    """Yield deltas of every choice, then the counters. Raises ApiError if the run fails, EngineError if it is lost."""
    reasons: dict[int, FinishReason] = {}
    num_tokens: Counter[int] = Counter()
    if head.echo:
        for choice in range(head.num_choices):
            yield {"type": "delta", "choice": choice, "text": head.echo}
    async for event in reader:
        payload = event.payload
        if isinstance(payload, Delta | ChoiceFinished):
            if isinstance(payload, ChoiceFinished):
                reasons[payload.choice] = payload.reason
            else:
                num_tokens[payload.choice] += len(payload.token_ids)
            message = delta_message(payload, head)
            if message is not None:
                yield message
        elif isinstance(payload, Completed) and payload.outcome in (Outcome.FINISHED, Outcome.STOPPED):
            choices = [
                {"finish_reason": reasons.get(choice), "tokens": num_tokens[choice]}
                for choice in range(head.num_choices)
            ]
            ending = {"outcome": payload.outcome, "usage": asdict(payload.usage), "timings": timings(payload)}
            yield {"type": "completed", "choices": choices, **ending}
        else:
            ending_check(event)


def delta_message(payload: Delta | ChoiceFinished, head: AnswerHead) -> Message | None:
    """Return the message of a delta, or None if it shows nothing."""
    message: Message = {"type": "delta", "choice": payload.choice, "text": payload.text}
    if payload.reasoning and head.includes_reasoning:
        message["reasoning"] = payload.reasoning
    if payload.tool_calls:
        message["tool_calls"] = [asdict(call) for call in payload.tool_calls]
    return message if payload.text or len(message) > 3 else None


def timings(completed: Completed) -> dict[str, float | None]:
    """Return the seconds from arrival to the first token and to the end, and the decode rate."""
    arrived = completed.timings.arrived_at
    first, end = completed.timings.first_token_at, completed.timings.ended_at
    num_gaps = completed.usage.completion_tokens - 1
    rate = None
    if first is not None and end is not None and end > first and num_gaps > 0:
        rate = num_gaps / (end - first)
    return {
        "first_token_s": None if first is None else first - arrived,
        "total_s": None if end is None else end - arrived,
        "tokens_per_s": rate,
    }
