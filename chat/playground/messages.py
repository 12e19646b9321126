"""What the page is told of a run: one JSON object per event, the same over the socket and as server-sent events.

`docs/conversations.md` lists them. A log-probability is `{token, id, logprob, bytes, rank}`; `rank` is null where the
engine does not know it, and so is `bytes` of the prompt's tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from chat.api.chat_format.answer import finite_logprob
from chat.api.dialect import AnswerHead
from chat.conversations.runs import timings
from chat.errors import ApiError
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    FinishReason,
    PromptScored,
    RankedLogprob,
    TokenLogprob,
)

Message = dict[str, Any]


class RunMessages:
    """The messages of one run, which remember what its end must say."""

    def __init__(self, head: AnswerHead, *, has_ranks: bool) -> None:
        """`has_ranks`: alternatives are the most likely tokens, best first, and not those that the request names."""
        self._head, self._has_ranks = head, has_ranks
        self._reasons: dict[int, FinishReason] = {}
        self._stops: dict[int, str | int | None] = {}
        self._num_tokens: Counter[int] = Counter()
        self._seed: int | None = None
        self._prompt: PromptScored | None = None

    def admitted(self, admitted: Admitted) -> list[Message]:
        """Return the admission, and a delta with the text that each choice begins with, if there is one."""
        head, self._seed = self._head, admitted.seed
        message: Message = {
            "type": "admitted",
            "prompt_tokens": admitted.num_prompt_tokens,
            "model": head.model,
            "max_tokens": admitted.max_tokens,
            "seed": admitted.seed,
        }
        if head.returns_token_ids and admitted.prompt_ids is not None:
            message["prompt_token_ids"] = list(admitted.prompt_ids)
        echoed = range(head.num_choices) if head.echo else ()
        return [message, *({"type": "delta", "choice": choice, "text": head.echo} for choice in echoed)]

    def fed(self, payload: Delta | ChoiceFinished | PromptScored) -> Message | None:
        """Return the message of an event, or None if it shows nothing."""
        if isinstance(payload, PromptScored):
            self._prompt = payload
            return None
        if isinstance(payload, ChoiceFinished):
            self._reasons[payload.choice] = payload.reason
            self._stops[payload.choice] = payload.stop_reason
        else:
            self._num_tokens[payload.choice] += len(payload.token_ids)
        return self._delta(payload)

    def completed(self, completed: Completed, *, facts: Message) -> Message:
        """Return the last message of a run that did not fail, with further `facts`."""
        choices = [
            {"finish_reason": self._reasons.get(choice), "tokens": self._num_tokens[choice], "stop": self._stop(choice)}
            for choice in range(self._head.num_choices)
        ]
        message: Message = {
            "type": "completed",
            "choices": choices,
            "outcome": completed.outcome,
            "usage": asdict(completed.usage),
            "timings": timings(completed),
            "seed": self._seed,
            "stop": self._stop(0),
            **facts,
        }
        if self._prompt is not None:
            message["prompt_logprobs"] = [_ranked(entry) for entry in self._prompt.entries]
        return message

    def _stop(self, choice: int) -> str | int | None:
        return self._stops.get(choice)

    def _delta(self, payload: Delta | ChoiceFinished) -> Message | None:
        message: Message = {"type": "delta", "choice": payload.choice, "text": payload.text}
        if payload.reasoning and self._head.includes_reasoning:
            message["reasoning"] = payload.reasoning
        if payload.tool_calls:
            message["tool_calls"] = [asdict(call) for call in payload.tool_calls]
        if isinstance(payload, Delta):
            if payload.logprobs:
                message["logprobs"] = [self._sampled(entry) for entry in payload.logprobs]
            if self._head.returns_token_ids:
                message["token_ids"] = list(payload.token_ids)
        return message if payload.text or len(message) > 3 else None

    def _sampled(self, entry: TokenLogprob) -> Message:
        ranks = {other.token_id: rank for rank, other in enumerate(entry.top, 1)} if self._has_ranks else {}
        return {
            **_token(entry.token, entry.token_id, entry.logprob, entry.token_bytes, ranks.get(entry.token_id)),
            "top": [
                _token(other.token, other.token_id, other.logprob, other.token_bytes, ranks.get(other.token_id))
                for other in entry.top
            ],
        }


def error_message(error: ApiError) -> Message:
    fields = {"message": error.message, "code": error.code, "param": error.param}
    return {"type": "error", "error": fields, "request_id": error.request_id}


def _token(token: str, token_id: int, logprob: float, spelled: bytes | None, rank: int | None) -> Message:
    return {
        "token": token,
        "id": token_id,
        "logprob": finite_logprob(logprob),
        "bytes": None if spelled is None else list(spelled),
        "rank": rank,
    }


def _ranked(entry: Iterable[RankedLogprob]) -> Message | None:
    """Return a token of the prompt with its alternatives; None for the first, which has nothing before it."""
    tokens = [_token(token.token, token.token_id, token.logprob, None, token.rank) for token in entry]
    return {**tokens[0], "top": tokens[1:]} if tokens else None
