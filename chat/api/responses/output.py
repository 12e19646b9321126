"""Turn the engine's events into output items, in order: reasoning, messages and function calls.

The plain answer and the stream are both written from these items, so that they cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from chat.api.chat_format.answer import logprob_object
from chat.api.dialect import AnswerHead
from chat.api.responses.ids import item_id
from chat.api.responses.tools import NAMESPACE, split_names
from engine.api import ChoiceFinished, Delta, FinishReason, TokenLogprob, ToolCallDelta

Item = dict[str, Any]


class Growth(StrEnum):
    """A kind of growth: a new item, more of its text or arguments, or its end."""

    ADDED = "added"
    MORE = "more"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Grown:
    """One step of growth of the item at `index`. Only MORE has `delta` and `logprobs`."""

    growth: Growth
    index: int
    item: Item
    delta: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)


class OutputItems:
    """The output items of one choice: `take` its events, then `end`. At most one item, the last, is open."""

    def __init__(self, head: AnswerHead) -> None:
        self.items: list[Item] = []
        self._head = head
        self._namespaces = split_names(head.echo_fields.get("tools", ()))
        self._pieces: list[str] | None = None
        self._call_index: int | None = None
        self._logprobs: list[dict[str, Any]] = []
        self.is_cut = False
        """True if the token limit ended it."""

    def take(self, payload: Delta | ChoiceFinished) -> list[Grown]:
        grown: list[Grown] = []
        if payload.reasoning:
            # What the model only thinks has no place for log-probabilities.
            self._logprobs = []
            if self._head.includes_reasoning:
                grown += self._write("reasoning", payload.reasoning, [])
        elif isinstance(payload, Delta):
            self._logprobs += self._shown(payload.logprobs)
        if payload.text:
            logprobs, self._logprobs = self._logprobs, []
            grown += self._write("message", payload.text, logprobs)
        for call in payload.tool_calls:
            self._logprobs = []
            grown += self._call(call)
        if isinstance(payload, ChoiceFinished):
            self.is_cut = payload.reason == FinishReason.LENGTH
        return grown

    def end(self) -> list[Grown]:
        """End the output. An answer without text is an empty message, unless it could only have been a call."""
        grown = []
        if not self.items and not self._head.is_call_forced:
            grown += self._open("message")
        return grown + self._close("incomplete" if self.is_cut else "completed")

    def snapshot(self) -> list[Item]:
        """Return the items so far, the open one included, for an answer that breaks off."""
        self._settle("incomplete")
        return self.items

    def _shown(self, logprobs: tuple[TokenLogprob, ...] | None) -> list[dict[str, Any]]:
        return [logprob_object(entry, by_id=self._head.names_tokens_by_id) for entry in logprobs or ()]

    def _write(self, kind: str, text: str, logprobs: list[dict[str, Any]]) -> list[Grown]:
        grown = []
        if self._pieces is None or self.items[-1]["type"] != kind:
            grown = self._close("completed") + self._open(kind)
        assert self._pieces is not None
        self._pieces.append(text)
        item = self.items[-1]
        if kind == "message":
            item["content"][0]["logprobs"] += logprobs
        return [*grown, Grown(Growth.MORE, len(self.items) - 1, item, text, logprobs)]

    def _call(self, call: ToolCallDelta) -> list[Grown]:
        grown = []
        if call.index != self._call_index or self._pieces is None:
            grown = self._close("completed") + self._open("function_call", call)
            self._call_index = call.index
        if call.arguments:
            assert self._pieces is not None
            self._pieces.append(call.arguments)
            grown.append(Grown(Growth.MORE, len(self.items) - 1, self.items[-1], call.arguments))
        return grown

    def _open(self, kind: str, call: ToolCallDelta | None = None) -> list[Grown]:
        item: Item = {
            "id": item_id(kind, self._head.echo_fields["id"], len(self.items)),
            "type": kind,
            "status": "in_progress",
        }
        if kind == "reasoning":
            item |= {"summary": [], "content": [{"type": "reasoning_text", "text": ""}], "encrypted_content": None}
        elif kind == "message":
            item |= {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}],
            }
        elif call is not None:
            namespace, name = self._namespaces.get(call.name, ("", call.name))
            item |= {"call_id": call.id, "name": name, "arguments": "", **({NAMESPACE: namespace} if namespace else {})}
        self.items.append(item)
        self._pieces = []
        return [Grown(Growth.ADDED, len(self.items) - 1, dict(item))]

    def _close(self, status: str) -> list[Grown]:
        if self._pieces is None:
            return []
        self._settle(status)
        self._pieces = self._call_index = None
        return [Grown(Growth.DONE, len(self.items) - 1, self.items[-1])]

    def _settle(self, status: str) -> None:
        """Join the text once; joining at each piece would be quadratic."""
        if self._pieces is None:
            return
        item, text = self.items[-1], "".join(self._pieces)
        item["status"] = status
        if item["type"] == "function_call":
            item["arguments"] = text
        else:
            item["content"][0]["text"] = text
