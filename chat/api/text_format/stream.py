"""Write the frames of a streamed text completion, from the updates of all runs. Chunks of different choices interleave.

A choice begins with its prompt, if any of it is requested, and ends with the finish reason. Once all have ended come
the usage chunk, if requested, and the end of the framing.
"""

from __future__ import annotations

from typing import Any

from chat.api.answering.multi_run import RunUpdate
from chat.api.answering.streaming import compact_json, data_frame
from chat.api.chat_format.answer import usage_object
from chat.api.chat_format.stream import PLAIN, DeltaGroup
from chat.api.dialect import Framing
from chat.api.text_format.head import PromptEcho, TextHead, shown_text, usage_sum
from chat.errors import ApiError
from engine.api import Admitted, ChoiceFinished, Completed, Delta, PromptScored, Usage


class StreamedChoice:
    """The state of one choice. `num_tokens` have been sent."""

    def __init__(self, index: int, prompt: PromptEcho) -> None:
        self.index = index
        self.prompt = prompt
        self.logprobs = prompt.head.logprobs()
        self.group = DeltaGroup()
        self.num_tokens = 0
        self.has_begun = False
        self.has_shown = False


class TextStream:
    """A writer of streams: `feed` returns the frames due after an update, b"" for none; `end` those after the last."""

    def __init__(self, head: TextHead, framing: Framing = PLAIN) -> None:
        self.head = head
        self.framing = framing
        self.prompts = [PromptEcho(head, raw) for raw in head.prompts]
        self.choices = [
            [StreamedChoice(place * head.num_choices + number, prompt) for number in range(head.num_choices)]
            for place, prompt in enumerate(self.prompts)
        ]
        self.usages: list[Usage] = []

    def feed(self, index: int, update: RunUpdate) -> bytes:
        payload = update if isinstance(update, Admitted) else update.payload
        if isinstance(payload, Delta):
            choice = self.choices[index][payload.choice]
            return self._begin(choice) + self._delta(choice, payload)
        if isinstance(payload, ChoiceFinished):
            choice = self.choices[index][payload.choice]
            return self._begin(choice) + self._flush(choice) + self._finish(choice, payload)
        if isinstance(payload, Admitted | PromptScored):
            self.prompts[index].take(payload)
        elif isinstance(payload, Completed):
            self.usages.append(payload.usage)
        return b""

    def error(self, error: ApiError) -> bytes:
        held = b"".join(self._flush(choice) for choices in self.choices for choice in choices)
        return held + self.framing.error(error) + self.framing.end

    def end(self) -> bytes:
        if not self.head.include_usage:
            return self.framing.end
        return self._frame({"choices": [], "usage": usage_object(usage_sum(self.usages))}) + self.framing.end

    def _begin(self, choice: StreamedChoice) -> bytes:
        """Return the chunk about the prompt, before the first token."""
        if choice.has_begun:
            return b""
        choice.has_begun = True
        if choice.logprobs is not None:
            choice.prompt.add_to(choice.logprobs)
        keys, text = choice.prompt.keys(), choice.prompt.text
        return self._chunk(choice, text, **keys) if keys or text else b""

    def _delta(self, choice: StreamedChoice, delta: Delta) -> bytes:
        """Return the chunk of a delta, or of the deltas that waited for it. The first visible one does not wait."""
        if self.head.stream_interval > 1 and choice.has_shown:
            return b"".join(self._send(choice, due) for due in choice.group.add(delta, self.head.stream_interval))
        frame = self._send(choice, delta)
        choice.has_shown = choice.has_shown or bool(frame)
        return frame

    def _flush(self, choice: StreamedChoice) -> bytes:
        return b"".join(self._send(choice, due) for due in choice.group.take())

    def _send(self, choice: StreamedChoice, delta: Delta) -> bytes:
        choice.num_tokens += len(delta.token_ids)
        if choice.logprobs is not None:
            choice.logprobs.add(delta.logprobs or ())
        text = shown_text(delta)
        ids: dict[str, Any] = {"token_ids": delta.token_ids} if self.head.returns_token_ids else {}
        if not (text or ids or choice.logprobs is not None or self.head.continuous_usage):
            return b""
        return self._chunk(choice, text, **ids)

    def _finish(self, choice: StreamedChoice, finished: ChoiceFinished) -> bytes:
        return self._chunk(
            choice, shown_text(finished), finish_reason=finished.reason.value, stop_reason=finished.stop_reason
        )

    def _chunk(self, choice: StreamedChoice, text: str, *, finish_reason: str | None = None, **keys: Any) -> bytes:
        """Return one frame of a choice, with the log-probabilities that wait. `keys` are further ones of the choice."""
        logprobs = choice.logprobs.take() if choice.logprobs is not None else None
        if logprobs is not None and not any(logprobs.values()):
            logprobs = None
        fields = {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason, **keys}
        body: dict[str, Any] = {"choices": [fields]}
        if self.head.continuous_usage and choice.prompt.admitted is not None:
            running = Usage(prompt_tokens=choice.prompt.admitted.num_prompt_tokens, completion_tokens=choice.num_tokens)
            body["usage"] = usage_object(running)
        elif self.head.include_usage:
            body["usage"] = None
        return self._frame(body)

    def _frame(self, body: dict[str, Any]) -> bytes:
        return data_frame(compact_json({**self.head.common(), **body}))
