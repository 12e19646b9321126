"""Write the answer to a request that does not stream: one JSON object, from the engine's events.

Log-probabilities of generated tokens have OpenAI's shape, those of the prompt vLLM's. With `by_id`
(return_tokens_as_token_ids) `token_id:N` replaces the text of a token; `bytes` stay the token's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from chat.api.dialect import AnswerHead
from engine.api import (
    ChoiceFinished,
    Completed,
    Delta,
    Event,
    FinishReason,
    PromptScored,
    RankedLogprob,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Usage,
)

LOWEST_LOGPROB = -9999.0


def logprobs_object(entries: Iterable[TokenLogprob], *, by_id: bool) -> dict[str, Any]:
    return {"content": [logprob_object(entry, by_id=by_id) for entry in entries], "refusal": None}


def logprob_object(entry: TokenLogprob, *, by_id: bool) -> dict[str, Any]:
    return {**_fields(entry, by_id), "top_logprobs": [_fields(other, by_id) for other in entry.top]}


def prompt_logprobs_list(scored: PromptScored) -> list[dict[str, Any] | None]:
    """Return one entry per token of the prompt; null for the first, which has nothing before it."""
    return [{str(token.token_id): _ranked(token) for token in entry} if entry else None for entry in scored.entries]


def _fields(entry: TokenLogprob | TopLogprob, by_id: bool) -> dict[str, Any]:
    token = f"token_id:{entry.token_id}" if by_id else entry.token
    return {"token": token, "logprob": finite_logprob(entry.logprob), "bytes": list(entry.token_bytes)}


def _ranked(token: RankedLogprob) -> dict[str, Any]:
    return {"logprob": finite_logprob(token.logprob), "rank": token.rank, "decoded_token": token.token}


def finite_logprob(logprob: float) -> float:
    """Return the number as JSON can hold it. NaN too becomes the lowest value."""
    return logprob if logprob > LOWEST_LOGPROB else LOWEST_LOGPROB


def usage_object(usage: Usage, transcription: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the counts, with what the `transcription` of sound in the messages took, which is counted apart."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            **{f"{kind}_tokens": number for kind, number in usage.media_tokens.items()},
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "accepted_prediction_tokens": usage.accepted_prediction_tokens,
            "rejected_prediction_tokens": usage.rejected_prediction_tokens,
        },
        **({"transcription": dict(transcription)} if transcription else {}),
    }


def finish_word(head: AnswerHead, reason: FinishReason) -> str:
    """Return `finish_reason`. Requests of the deprecated form get the deprecated word."""
    return "function_call" if head.answers_function_call and reason == FinishReason.TOOL_CALLS else reason.value


class ChoiceParts:
    """The parts of one choice so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.arguments: list[list[str]] = []
        self.token_ids: list[int] = []
        self.logprobs: list[dict[str, Any]] = []
        self.finished: ChoiceFinished | None = None

    def add(self, payload: Delta | ChoiceFinished) -> None:
        self.texts.append(payload.text)
        self.reasoning.append(payload.reasoning)
        for call in payload.tool_calls:
            self._add_call(call)

    def _add_call(self, call: ToolCallDelta) -> None:
        if call.name:
            self.calls.append({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}})
            self.arguments.append([])
        self.arguments[call.index].append(call.arguments)

    def tool_calls(self) -> list[dict[str, Any]]:
        for call, pieces in zip(self.calls, self.arguments, strict=True):
            call["function"]["arguments"] = "".join(pieces)
        return self.calls


class ChatAnswer:
    """A writer of whole answers: `feed` every event, then take `body`."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.choices = [ChoiceParts() for _ in range(head.num_choices)]
        self.prompt_scores: PromptScored | None = None
        self.usage = Usage(prompt_tokens=head.num_prompt_tokens)

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, Delta):
            parts = self.choices[payload.choice]
            parts.add(payload)
            parts.token_ids += payload.token_ids
            parts.logprobs += [
                logprob_object(entry, by_id=self.head.names_tokens_by_id) for entry in payload.logprobs or ()
            ]
        elif isinstance(payload, ChoiceFinished):
            parts = self.choices[payload.choice]
            parts.add(payload)
            parts.finished = payload
        elif isinstance(payload, PromptScored):
            self.prompt_scores = payload
        elif isinstance(payload, Completed):
            self.usage = payload.usage

    def body(self) -> bytes:
        head = self.head
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{head.request_id}",
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(index, parts) for index, parts in enumerate(self.choices)],
            "system_fingerprint": head.fingerprint,
            "usage": usage_object(self.usage, self.head.transcription),
            "prompt_logprobs": prompt_logprobs_list(self.prompt_scores) if self.prompt_scores is not None else None,
            "prompt_token_ids": head.prompt_ids,
            "kv_transfer_params": None,
        }
        if head.prompt_text is not None:
            answer["prompt_text"] = head.prompt_text
        if head.service_tier is not None:
            answer["service_tier"] = head.service_tier
        return orjson.dumps(answer)

    def _choice(self, index: int, parts: ChoiceParts) -> dict[str, Any]:
        assert parts.finished is not None, "a run completed before its choices did"
        return {
            "index": index,
            "message": self._message(parts),
            "logprobs": {"content": parts.logprobs, "refusal": None} if self.head.has_logprobs else None,
            "finish_reason": finish_word(self.head, parts.finished.reason),
            "stop_reason": parts.finished.stop_reason,
            "token_ids": parts.token_ids if self.head.returns_token_ids else None,
        }

    def _message(self, parts: ChoiceParts) -> dict[str, Any]:
        """Return the message. `content` is null if the model has only thought, or called, or could only call."""
        calls = parts.tool_calls()
        reasoning = "".join(parts.reasoning)
        content = self.head.echo + "".join(parts.texts)
        shown = reasoning if reasoning and self.head.includes_reasoning else None
        message = {
            "role": self.head.role,
            "content": content if content or not (calls or reasoning or self.head.is_call_forced) else None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": calls[0]["function"] if calls and self.head.answers_function_call else None,
            "reasoning": shown,
            "reasoning_content": shown,
        }
        if calls and not self.head.answers_function_call:
            message["tool_calls"] = calls
        return message
