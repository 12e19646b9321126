"""Write answers as JSON objects: one for each piece of a stream, each on a line of its own, or a single one.

Calls are written whole, as their arguments are objects. JSON is in ASCII: clients split lines at U+2028 and U+0085.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from chat.api.answering.streaming import Transport, compact_json
from chat.api.chat_format.answer import logprob_object
from chat.api.chat_format.arguments import input_read
from chat.api.dialect import AnswerHead
from chat.errors import ApiError
from engine.api import ChoiceFinished, Completed, Delta, Event, FinishReason, Timings, TokenLogprob, ToolCallDelta

MEDIA_TYPE = "application/x-ndjson"
NANOSECONDS = 1_000_000_000
LOADED, UNLOADED = "load", "unload"
"""The `done_reason` of a request that has only loaded its model, or had it unloaded."""

Content = Callable[[str, str, Sequence[dict[str, Any]]], dict[str, Any]]
"""From a text, a thought and calls to the members of an object that hold them."""


def chat_content(text: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


def generated_content(text: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"response": text, **({"thinking": thinking} if thinking else {})}


def line(value: dict[str, Any]) -> bytes:
    return compact_json(value).encode("ascii") + b"\n"


def error_line(error: ApiError) -> bytes:
    return line({"error": error.message})


def now_text() -> str:
    return instant_text(datetime.now(UTC))


def instant_text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def transport_of(head: AnswerHead, content: Content) -> Transport:
    """Return the way of a stream. A silence is broken by a piece without content, as clients read every line."""
    return Transport(MEDIA_TYPE, line(_piece(head, content("", "", ()))))


class CallReader:
    """Joins the pieces of calls. A call is whole when the next one begins, or the answer ends."""

    def __init__(self) -> None:
        self._open: ToolCallDelta | None = None
        self._pieces: list[str] = []

    def feed(self, pieces: Sequence[ToolCallDelta]) -> list[dict[str, Any]]:
        """Return the calls that are whole now."""
        whole: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.name:
                whole += self.flush()
                self._open = piece
            self._pieces.append(piece.arguments)
        return whole

    def flush(self) -> list[dict[str, Any]]:
        """Return the last call, if there is one: the complete part of its arguments, if they were cut off."""
        opened, text = self._open, "".join(self._pieces)
        self._open, self._pieces = None, []
        if opened is None:
            return []
        function = {"index": opened.index, "name": opened.name, "arguments": input_read(text)}
        return [{"id": opened.id, "function": function}]


class LineStream:
    """A writer of streams: `feed` returns the line that is due after an event, b"" for none."""

    def __init__(self, head: AnswerHead, content: Content) -> None:
        self.head = head
        self._content = content
        self._calls = CallReader()
        self._finished: ChoiceFinished | None = None

    def feed(self, event: Event) -> bytes:
        payload = event.payload
        if isinstance(payload, Delta):
            return self._line(payload, self._calls.feed(payload.tool_calls), payload.logprobs or ())
        if isinstance(payload, ChoiceFinished):
            self._finished = payload
            return self._line(payload, [*self._calls.feed(payload.tool_calls), *self._calls.flush()], ())
        if isinstance(payload, Completed):
            return line(_end(self.head, self._content("", "", ()), self._finished, payload))
        return b""

    def error(self, error: ApiError) -> bytes:
        return error_line(error)

    def _line(
        self, payload: Delta | ChoiceFinished, calls: list[dict[str, Any]], logprobs: Sequence[TokenLogprob]
    ) -> bytes:
        thinking = payload.reasoning if self.head.includes_reasoning else ""
        if not (payload.text or thinking or calls or logprobs):
            return b""
        piece = _piece(self.head, self._content(payload.text, thinking, calls))
        return line(piece | ({"logprobs": _logprobs(logprobs)} if logprobs else {}))


class WholeAnswer:
    """A writer of whole answers: `feed` every event, then take `body`."""

    def __init__(self, head: AnswerHead, content: Content) -> None:
        self.head = head
        self._content = content
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._reader = CallReader()
        self._calls: list[dict[str, Any]] = []
        self._logprobs: list[TokenLogprob] = []
        self._finished: ChoiceFinished | None = None
        self._completed: Completed | None = None

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, Delta | ChoiceFinished):
            self._texts.append(payload.text)
            self._thoughts.append(payload.reasoning)
            self._calls += self._reader.feed(payload.tool_calls)
        if isinstance(payload, Delta):
            self._logprobs += payload.logprobs or ()
        elif isinstance(payload, ChoiceFinished):
            self._calls += self._reader.flush()
            self._finished = payload
        elif isinstance(payload, Completed):
            self._completed = payload

    def body(self) -> bytes:
        assert self._completed is not None, "an answer was asked for before its run had ended"
        thinking = "".join(self._thoughts) if self.head.includes_reasoning else ""
        content = self._content("".join(self._texts), thinking, self._calls)
        answer = _end(self.head, content, self._finished, self._completed)
        if self._logprobs:
            answer["logprobs"] = _logprobs(self._logprobs)
        return compact_json(answer).encode("ascii")


def unloaded(model: str, content: Content) -> dict[str, Any]:
    """Return the answer to a request that has its model unloaded."""
    members = {"model": model, "created_at": now_text(), **content("", "", ())}
    return members | {"done": True, "done_reason": UNLOADED}


def _piece(head: AnswerHead, content: dict[str, Any]) -> dict[str, Any]:
    return {"model": head.model, "created_at": now_text(), **content, "done": False}


def _end(
    head: AnswerHead, content: dict[str, Any], finished: ChoiceFinished | None, completed: Completed
) -> dict[str, Any]:
    """Return the last object of an answer. A run without a choice has only loaded its model."""
    ended = {"model": head.model, "created_at": now_text(), **content, "done": True}
    if finished is None:
        return ended | {"done_reason": LOADED}
    reason = "length" if finished.reason is FinishReason.LENGTH else "stop"
    counts = {"prompt_eval_count": completed.usage.prompt_tokens, "eval_count": completed.usage.completion_tokens}
    return ended | {"done_reason": reason, **durations(completed.timings), **counts}


def durations(timings: Timings) -> dict[str, int]:
    """Return the nanoseconds of a run and of its parts: before the first step, of the prompt, of the answer."""
    return {
        "total_duration": span_ns(timings.arrived_at, timings.ended_at),
        "load_duration": span_ns(timings.arrived_at, timings.started_at),
        "prompt_eval_duration": span_ns(timings.started_at, timings.first_token_at),
        "eval_duration": span_ns(timings.first_token_at, timings.ended_at),
    }


def span_ns(start: float | None, end: float | None) -> int:
    """Return the nanoseconds from one unix time in seconds to another; 0 if either is not known."""
    return 0 if start is None or end is None else max(0, round((end - start) * NANOSECONDS))


def _logprobs(entries: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    return [logprob_object(entry, by_id=False) for entry in entries]
