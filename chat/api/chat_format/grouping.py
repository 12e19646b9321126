"""Join deltas into one chunk, as stream_interval asks: texts, tokens and log-probabilities in order."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api import Delta, ToolCallDelta


class DeltaGroup:
    """The deltas of one choice that wait to be sent."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._num_tokens = 0

    def add(self, delta: Delta, interval: int) -> list[Delta]:
        """Add a delta. Return the deltas to send now: all that wait, once they have `interval` tokens."""
        self._deltas.append(delta)
        self._num_tokens += len(delta.token_ids)
        return self.take() if self._num_tokens >= interval else []

    def take(self) -> list[Delta]:
        """Return all deltas that wait."""
        joined = join_deltas(self._deltas)
        self._deltas, self._num_tokens = [], 0
        return joined


def join_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """Return the fewest deltas with the same content in the same order.

    In one delta reasoning goes before text, and text before calls.
    """
    joined: list[Delta] = []
    for delta in deltas:
        if joined and _can_join(joined[-1], delta):
            joined[-1] = _join(joined[-1], delta)
        else:
            joined.append(delta)
    return joined


def _can_join(first: Delta, second: Delta) -> bool:
    if first.tool_calls and (second.text or second.reasoning):
        return False
    return not (first.text and second.reasoning)


def _join(first: Delta, second: Delta) -> Delta:
    logprobs = (first.logprobs or ()) + (second.logprobs or ())
    return Delta(
        choice=first.choice,
        token_ids=first.token_ids + second.token_ids,
        text=first.text + second.text,
        logprobs=logprobs or None,
        reasoning=first.reasoning + second.reasoning,
        tool_calls=_join_calls(first.tool_calls + second.tool_calls),
    )


def _join_calls(calls: tuple[ToolCallDelta, ...]) -> tuple[ToolCallDelta, ...]:
    joined: list[ToolCallDelta] = []
    for call in calls:
        if joined and joined[-1].index == call.index:
            last = joined[-1]
            joined[-1] = ToolCallDelta(last.index, last.id, last.name, last.arguments + call.arguments)
        else:
            joined.append(call)
    return tuple(joined)
