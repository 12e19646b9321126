"""Answers of the Lightcone dialect: one JSON object, or the frames of a stream, from the engine's events.

Order in a stream: role chunks of all choices when the first token is ready, then deltas, one last chunk per choice, the usage chunk
where asked for, `[DONE]`. Chunks are assembled as text around the one part that needs escaping, as they are made per token.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from chat.dialects.view import AnswerHead
from chat.errors import ApiError
from chat.sse import DONE, data_frame, json_string
from engine.api import ChoiceFinished, Completed, Delta, Event, TokenLogprob, Usage

LOWEST_LOGPROB = -9999.0


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    }


def logprob_object(entry: TokenLogprob) -> dict[str, Any]:
    top = [_logprob_fields(other.token, other.logprob, other.token_bytes) for other in entry.top]
    return {**_logprob_fields(entry.token, entry.logprob, entry.token_bytes), "top_logprobs": top}


def _logprob_fields(token: str, logprob: float, token_bytes: bytes) -> dict[str, Any]:
    # NOTE: also turns NaN, which JSON cannot hold, into the lowest value.
    return {"token": token, "logprob": logprob if logprob > LOWEST_LOGPROB else LOWEST_LOGPROB, "bytes": list(token_bytes)}


class ChatAnswer:
    """The object of a request that does not stream; `body` once the run has completed."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.texts: list[list[str]] = [[] for _ in range(head.num_choices)]
        self.logprobs: list[list[dict[str, Any]]] = [[] for _ in range(head.num_choices)]
        self.finished: dict[int, ChoiceFinished] = {}
        self.usage = Usage(prompt_tokens=head.num_prompt_tokens)

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, Delta):
            self.texts[payload.choice].append(payload.text)
            self.logprobs[payload.choice] += [logprob_object(entry) for entry in payload.logprobs or ()]
        elif isinstance(payload, ChoiceFinished):
            self.texts[payload.choice].append(payload.text)
            self.finished[payload.choice] = payload
        elif isinstance(payload, Completed):
            self.usage = payload.usage

    def body(self) -> bytes:
        head = self.head
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{head.request_id}",
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(index) for index in range(head.num_choices)],
            "system_fingerprint": head.fingerprint,
            "usage": usage_object(self.usage),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }
        if head.service_tier is not None:
            answer["service_tier"] = head.service_tier
        return orjson.dumps(answer)

    def _choice(self, index: int) -> dict[str, Any]:
        finished = self.finished[index]
        return {
            "index": index,
            "message": {
                "role": self.head.role,
                "content": "".join(self.texts[index]),
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": None,
                "reasoning_content": None,
            },
            "logprobs": {"content": self.logprobs[index], "refusal": None} if self.head.has_logprobs else None,
            "finish_reason": finished.reason.value,
            "stop_reason": finished.stop_reason,
            "token_ids": None,
        }


class ChatStream:
    """The frames of a streamed answer; `feed` gives what is due after an event, b"" where nothing is."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.num_tokens = [0] * head.num_choices
        self.has_begun = False
        tier = f',"service_tier":{json_string(head.service_tier)}' if head.service_tier is not None else ""
        self._open = (
            f'{{"id":{json_string("chatcmpl-" + head.request_id)},"object":"chat.completion.chunk","created":{head.created},'
            f'"model":{json_string(head.model)},"system_fingerprint":{json_string(head.fingerprint)}{tier},"choices":['
        )

    def feed(self, event: Event) -> bytes:
        payload = event.payload
        if isinstance(payload, Delta):
            return self._begin() + self._delta(payload)
        if isinstance(payload, ChoiceFinished):
            return self._begin() + self._finish(payload)
        if isinstance(payload, Completed):
            return self._begin() + self._end(payload.usage)
        return b""

    def error(self, error: ApiError) -> bytes:
        return data_frame(json.dumps({"error": error.described()})) + DONE

    def _begin(self) -> bytes:
        if self.has_begun:
            return b""
        self.has_begun = True
        delta = f'{{"role":{json_string(self.head.role)},"content":""}}'
        return b"".join(self._chunk(index, delta) for index in range(self.head.num_choices))

    def _delta(self, delta: Delta) -> bytes:
        self.num_tokens[delta.choice] += len(delta.token_ids)
        if not delta.text and not delta.logprobs and not self.head.continuous_usage:
            return b""
        logprobs = "null"
        if delta.logprobs:
            logprobs = json.dumps({"content": [logprob_object(entry) for entry in delta.logprobs], "refusal": None}, separators=(",", ":"))
        return self._chunk(delta.choice, f'{{"content":{json_string(delta.text)}}}', logprobs)

    def _finish(self, finished: ChoiceFinished) -> bytes:
        delta = f'{{"content":{json_string(finished.text)}}}' if finished.text else "{}"
        end = f'"{finished.reason.value}","stop_reason":{json.dumps(finished.stop_reason)}'
        return self._chunk(finished.choice, delta, finish_reason=end)

    def _end(self, usage: Usage) -> bytes:
        if not self.head.include_usage:
            return DONE
        return data_frame(f'{self._open}],"usage":{json.dumps(usage_object(usage), separators=(",", ":"))}}}') + DONE

    def _chunk(self, index: int, delta: str, logprobs: str = "null", finish_reason: str = "null") -> bytes:
        usage = ""
        if self.head.continuous_usage:
            running = Usage(prompt_tokens=self.head.num_prompt_tokens, completion_tokens=self.num_tokens[index])
            usage = f',"usage":{json.dumps(usage_object(running), separators=(",", ":"))}'
        elif self.head.include_usage:
            usage = ',"usage":null'
        return data_frame(
            f'{self._open}{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish_reason}}}]{usage}}}'
        )
