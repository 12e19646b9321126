"""Write a text completion that does not stream: one JSON object, from the updates of all runs."""

from __future__ import annotations

from typing import Any

import orjson

from chat.api.answering.multi_run import RunUpdate
from chat.api.chat_format.answer import usage_object
from chat.api.text_format.head import PromptEcho, TextHead, shown_text, usage_sum
from engine.api import Admitted, ChoiceFinished, Completed, Delta, FinishReason, PromptScored, TokenLogprob, Usage


class TextChoice:
    """The parts of one choice so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.entries: list[TokenLogprob] = []
        self.reason = FinishReason.LENGTH
        self.stop_reason: str | int | None = None


class TextAnswer:
    """A writer of whole text completions: `feed` the updates of every run, then take `body`.

    The choices of a prompt are written as its run completes: they are far larger unwritten, and all at once would hold
    up the loop.
    """

    def __init__(self, head: TextHead) -> None:
        self.head = head
        self.prompts = {index: PromptEcho(head, raw) for index, raw in enumerate(head.prompts)}
        self.choices = {index: [TextChoice() for _ in range(head.num_choices)] for index in self.prompts}
        self.usages: list[Usage] = []
        self.written: dict[int, list[orjson.Fragment]] = {}

    def feed(self, index: int, update: RunUpdate) -> None:
        payload = update if isinstance(update, Admitted) else update.payload
        if isinstance(payload, Admitted | PromptScored):
            self.prompts[index].take(payload)
        elif isinstance(payload, Completed):
            self.usages.append(payload.usage)
            self.written[index] = self._written(index)
        elif isinstance(payload, Delta | ChoiceFinished):
            self._add(self.choices[index][payload.choice], payload)

    def _add(self, choice: TextChoice, payload: Delta | ChoiceFinished) -> None:
        choice.texts.append(shown_text(payload))
        if isinstance(payload, ChoiceFinished):
            choice.reason, choice.stop_reason = payload.reason, payload.stop_reason
        else:
            choice.token_ids += payload.token_ids
            choice.entries += payload.logprobs or ()

    def body(self) -> bytes:
        choices = [choice for index in sorted(self.written) for choice in self.written[index]]
        return orjson.dumps({**self.head.common(), "choices": choices, "usage": usage_object(usage_sum(self.usages))})

    def _written(self, index: int) -> list[orjson.Fragment]:
        """Return the written choices of prompt number `index`, and forget their parts."""
        prompt, first = self.prompts.pop(index), index * self.head.num_choices
        choices = enumerate(self.choices.pop(index), first)
        return [orjson.Fragment(orjson.dumps(self._choice(number, prompt, choice))) for number, choice in choices]

    def _choice(self, index: int, prompt: PromptEcho, choice: TextChoice) -> dict[str, Any]:
        logprobs = self.head.logprobs()
        if logprobs is not None:
            prompt.add_to(logprobs)
            logprobs.add(choice.entries)
        fields = {
            "index": index,
            "text": prompt.text + "".join(choice.texts),
            "logprobs": logprobs.take() if logprobs is not None else None,
            "finish_reason": choice.reason.value,
            "stop_reason": choice.stop_reason,
        }
        if self.head.returns_token_ids:
            fields["token_ids"] = choice.token_ids
        return fields | prompt.keys()
