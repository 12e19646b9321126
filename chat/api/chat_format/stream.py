"""Write the frames of a streamed answer, from the engine's events.

Role chunks of all choices come with the first token, then echo chunks, deltas, one last chunk per choice, the usage
chunk and the end of the framing. Chunks are made for each token: text around the one part that needs escaping.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from chat.api.answering.streaming import DONE, compact_json, data_frame, json_string
from chat.api.chat_format.answer import finish_word, logprobs_object, prompt_logprobs_list, usage_object
from chat.api.dialect import AnswerHead, Framing
from chat.errors import ApiError
from engine.api import ChoiceFinished, Completed, Delta, Event, PromptScored, ToolCallDelta, Usage


def _error_frame(error: ApiError) -> bytes:
    body: dict[str, Any] = {"error": error.described()}
    return data_frame(json.dumps(body))


def _named_error_frame(error: ApiError) -> bytes:
    body = {"error": error.described(), "message": error.message, "detail": error.message}
    return b"event: error\n" + data_frame(json.dumps(body))


PLAIN = Framing("plain", DONE, _error_frame)
"""Frames without event names, as OpenAI's clients want them."""

NAMED = Framing("named", b"event: done\n" + DONE, _named_error_frame)
"""Named events for the end and for errors. Scale's clients read each frame without a name as the JSON of a chunk."""

FRAMINGS = {framing.name: framing for framing in (PLAIN, NAMED)}


class DeltaGroup:
    """The deltas of one choice that wait to be sent as one chunk, as stream_interval asks."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._num_tokens = 0

    def add(self, delta: Delta, interval: int) -> list[Delta]:
        """Add a delta. Return the deltas to send now: all that wait, once they have `interval` tokens."""
        self._deltas.append(delta)
        self._num_tokens += len(delta.token_ids)
        return self.take() if self._num_tokens >= interval else []

    def take(self) -> list[Delta]:
        joined = join_deltas(self._deltas)
        self._deltas, self._num_tokens = [], 0
        return joined


def join_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """Return the fewest deltas with the same content. In one, reasoning goes before text, and text before calls."""
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


class ChatStream:
    """A writer of streams: `feed` returns the frames that are due after an event, b"" for none."""

    def __init__(self, head: AnswerHead, framing: Framing = PLAIN) -> None:
        self.head = head
        self.framing = framing
        self.num_tokens = [0] * head.num_choices
        self.has_begun = False
        self.has_sent = [False] * head.num_choices
        self.groups = [DeltaGroup() for _ in range(head.num_choices)]
        self.prompt_scores: PromptScored | None = None
        tier = f',"service_tier":{json_string(head.service_tier)}' if head.service_tier is not None else ""
        self._open = (
            f'{{"id":{json_string("chatcmpl-" + head.request_id)},"object":"chat.completion.chunk",'
            f'"created":{head.created},"model":{json_string(head.model)},"system_fingerprint":{json_string(head.fingerprint)}{tier},"choices":['
        )

    def feed(self, event: Event) -> bytes:
        payload = event.payload
        if isinstance(payload, Delta):
            return self._begin() + self._delta(payload)
        if isinstance(payload, ChoiceFinished):
            return self._begin() + self._flush(payload.choice) + self._finish(payload)
        if isinstance(payload, Completed):
            return self._begin() + self._end(payload.usage)
        if isinstance(payload, PromptScored):
            self.prompt_scores = payload
        return b""

    def error(self, error: ApiError) -> bytes:
        held = b"".join(self._flush(choice) for choice in range(self.head.num_choices))
        return held + self.framing.error(error) + self.framing.end

    def _begin(self) -> bytes:
        """Return role chunks, the first with the facts of the prompt; then echoes."""
        if self.has_begun:
            return b""
        self.has_begun = True
        head = self.head
        delta = f'{{"role":{json_string(head.role)},"content":""}}'
        frames = [
            self._chunk(index, delta, prompt="" if index else self._prompt()) for index in range(head.num_choices)
        ]
        if head.echo:
            echo = f'{{"content":{json_string(head.echo)}}}'
            frames += [self._chunk(index, echo) for index in range(head.num_choices)]
        return b"".join(frames)

    def _prompt(self) -> str:
        """Return the keys of the first chunk alone."""
        keys = ""
        if self.head.prompt_ids is not None:
            keys += f',"prompt_token_ids":{compact_json(self.head.prompt_ids)}'
        if self.head.prompt_text is not None:
            keys += f',"prompt_text":{json_string(self.head.prompt_text)}'
        if self.prompt_scores is not None:
            keys += f',"prompt_logprobs":{compact_json(prompt_logprobs_list(self.prompt_scores))}'
        return keys

    def _delta(self, delta: Delta) -> bytes:
        """Return the chunks of a delta, or of those that waited for it.

        The first visible one of a choice does not wait.
        """
        choice = delta.choice
        if self.head.stream_interval > 1 and self.has_sent[choice]:
            due = self.groups[choice].add(delta, self.head.stream_interval)
            return b"".join(map(self._send, due)) if due else b""
        frames = self._send(delta)
        if frames:
            self.has_sent[choice] = True
        return frames

    def _flush(self, choice: int) -> bytes:
        return b"".join(map(self._send, self.groups[choice].take()))

    def _send(self, delta: Delta) -> bytes:
        """Return a chunk for each kind of output. Tokens and log-probabilities go with the first."""
        self.num_tokens[delta.choice] += len(delta.token_ids)
        bodies = self._bodies(delta)
        head = self.head
        if not bodies:
            if not (delta.logprobs or head.returns_token_ids or head.continuous_usage):
                return b""
            bodies = ["{}"]
        logprobs = (
            compact_json(logprobs_object(delta.logprobs, by_id=head.names_tokens_by_id)) if delta.logprobs else "null"
        )
        first = self._chunk(
            delta.choice, bodies[0], logprobs, token_ids=delta.token_ids if head.returns_token_ids else ()
        )
        if len(bodies) == 1:
            return first
        return first + b"".join(self._chunk(delta.choice, body) for body in bodies[1:])

    def _finish(self, finished: ChoiceFinished) -> bytes:
        *early, last = self._bodies(finished) or ["{}"]
        end = f'"{finish_word(self.head, finished.reason)}","stop_reason":{json.dumps(finished.stop_reason)}'
        return b"".join(self._chunk(finished.choice, body) for body in early) + self._chunk(
            finished.choice, last, finish_reason=end
        )

    def _end(self, usage: Usage) -> bytes:
        if not self.head.include_usage:
            return self.framing.end
        return (
            data_frame(f'{self._open}],"usage":{compact_json(usage_object(usage, self.head.transcription))}}}')
            + self.framing.end
        )

    def _bodies(self, payload: Delta | ChoiceFinished) -> list[str]:
        """Return the `delta` objects of new output: reasoning, then content, then calls."""
        bodies = []
        if payload.reasoning and self.head.includes_reasoning:
            thought = json_string(payload.reasoning)
            bodies.append(f'{{"reasoning":{thought},"reasoning_content":{thought}}}')
        if payload.text:
            bodies.append(f'{{"content":{json_string(payload.text)}}}')
        for call in payload.tool_calls:
            bodies += self._call_bodies(call)
        return bodies

    def _call_bodies(self, call: ToolCallDelta) -> list[str]:
        """Return the deltas of a call. The first names it; clients join the arguments of the rest."""
        bodies = []
        if call.name:
            function = f'{{"name":{json_string(call.name)},"arguments":""}}'
            bodies.append(self._call_body(call.index, function, f'"id":{json_string(call.id)},"type":"function",'))
        if call.arguments:
            bodies.append(self._call_body(call.index, f'{{"arguments":{json_string(call.arguments)}}}'))
        return bodies

    def _call_body(self, index: int, function: str, identity: str = "") -> str:
        if self.head.answers_function_call:
            return f'{{"function_call":{function}}}'
        return f'{{"tool_calls":[{{"index":{index},{identity}"function":{function}}}]}}'

    def _chunk(
        self,
        index: int,
        delta: str,
        logprobs: str = "null",
        *,
        finish_reason: str = "null",
        token_ids: tuple[int, ...] = (),
        prompt: str = "",
    ) -> bytes:
        """Return one frame.

        `delta` and `logprobs` are JSON; `prompt` has further top-level keys, each with its comma.
        """
        usage = ""
        if self.head.continuous_usage:
            running = Usage(prompt_tokens=self.head.num_prompt_tokens, completion_tokens=self.num_tokens[index])
            usage = f',"usage":{compact_json(usage_object(running))}'
        elif self.head.include_usage:
            usage = ',"usage":null'
        ids = f',"token_ids":{compact_json(token_ids)}' if token_ids else ""
        return data_frame(
            f'{self._open}{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish_reason}{ids}}}]{usage}{prompt}}}'
        )
