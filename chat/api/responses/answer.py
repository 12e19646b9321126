"""The response object, and the answer to a request that does not stream."""

from __future__ import annotations

from typing import Any

import orjson

from chat.api.dialect import AnswerHead
from chat.api.responses.output import Item, OutputItems
from chat.errors import ApiError
from engine.api import ChoiceFinished, Completed, Delta, Event, Timings, Usage


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,
            **{f"{kind}_tokens": number for kind, number in usage.media_tokens.items()},
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def response_object(head: AnswerHead, status: str, **known: Any) -> dict[str, Any]:
    """Return a response with this status. `known` has what is known by then, beside the fields of the request."""
    return {
        "id": head.echo_fields["id"],
        "object": "response",
        "created_at": head.created,
        "status": status,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": head.model,
        "output": [],
        "usage": None,
        "temperature": head.temperature,
        "top_p": head.top_p,
        "service_tier": head.service_tier or "default",
        "conversation": None,
        "prompt": None,
        **{name: value for name, value in head.echo_fields.items() if name != "id"},
        **known,
    }


def ended_object(
    head: AnswerHead, items: list[Item], usage: Usage, timings: Timings, *, is_cut: bool
) -> dict[str, Any]:
    if is_cut:
        details = {"reason": "max_output_tokens"}
        return response_object(head, "incomplete", output=items, usage=usage_object(usage), incomplete_details=details)
    ended_at = int(timings.ended_at) if timings.ended_at is not None else head.created
    return response_object(head, "completed", output=items, usage=usage_object(usage), completed_at=ended_at)


def failed_object(head: AnswerHead, items: list[Item], error: ApiError) -> dict[str, Any]:
    """Return the response of a run that has failed. `items` are those up to the failure."""
    return response_object(head, "failed", output=items, error=error_object(error))


def error_object(error: ApiError) -> dict[str, Any]:
    """Return the error with one of the published codes, which clients check."""
    code = "rate_limit_exceeded" if error.status == 429 else "server_error" if error.status >= 500 else "invalid_prompt"
    return {"code": code, "message": error.message}


class ResponseAnswer:
    """A writer of whole responses: `feed` every event, then take `body`."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.output = OutputItems(head)
        self._completed: Completed | None = None

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, Delta | ChoiceFinished):
            self.output.take(payload)
        elif isinstance(payload, Completed):
            self.output.end()
            self._completed = payload

    def body(self) -> bytes:
        assert self._completed is not None
        ended = self._completed
        return orjson.dumps(
            ended_object(self.head, self.output.items, ended.usage, ended.timings, is_cut=self.output.is_cut)
        )
