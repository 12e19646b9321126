"""Write the events of a streamed response, in the order and with the names that OpenAI's clients know.

response.created, response.in_progress; for each item response.output_item.added, its parts and pieces,
response.output_item.done; last response.completed, response.incomplete, or error and response.failed; no `[DONE]`.
Every event has a `sequence_number`, from 0, which is the same each time a run is read: a stream can be resumed behind
any.
"""

from __future__ import annotations

from typing import Any

from chat.api.answering.streaming import compact_json
from chat.api.dialect import AnswerHead
from chat.api.responses.answer import ended_object, failed_object, response_object
from chat.api.responses.output import Grown, Growth, Item, OutputItems
from chat.errors import ApiError
from engine.api import Admitted, ChoiceFinished, Completed, Delta, Event

TEXT_EVENTS = {"message": "output_text", "reasoning": "reasoning_text"}


class ResponseStream:
    """A writer of streams: `feed` returns the frames due after an event, without those up to number `after`."""

    def __init__(self, head: AnswerHead, *, after: int = -1) -> None:
        self.head = head
        self.output = OutputItems(head)
        self._after = after
        self._num_events = 0

    def feed(self, event: Event) -> bytes:
        payload = event.payload
        if isinstance(payload, Admitted):
            return self._begin()
        if isinstance(payload, Delta | ChoiceFinished):
            return b"".join(map(self._grown, self.output.take(payload)))
        if isinstance(payload, Completed):
            last = b"".join(map(self._grown, self.output.end()))
            response = ended_object(
                self.head, self.output.items, payload.usage, payload.timings, is_cut=self.output.is_cut
            )
            return last + self._event(f"response.{response['status']}", response=response)
        return b""

    def error(self, error: ApiError) -> bytes:
        frames = self._event("error", code=error.code, message=error.message, param=error.param)
        return frames + self._event("response.failed", response=failed_object(self.head, self.output.snapshot(), error))

    def _begin(self) -> bytes:
        """Return the first frames.

        A background response is queued first: its stream may be read before the admission.
        """
        is_background = self.head.echo_fields["background"]
        queued = response_object(self.head, "queued")
        started = response_object(self.head, "in_progress")
        frames = [self._event("response.created", response=queued if is_background else started)]
        if is_background:
            frames.append(self._event("response.queued", response=queued))
        return b"".join((*frames, self._event("response.in_progress", response=started)))

    def _grown(self, grown: Grown) -> bytes:
        kind = grown.item["type"]
        if grown.growth is Growth.ADDED:
            return self._added(grown)
        if grown.growth is Growth.DONE:
            return self._done(grown)
        place = {"item_id": grown.item["id"], "output_index": grown.index}
        if kind == "function_call":
            return self._event("response.function_call_arguments.delta", **place, delta=grown.delta)
        logprobs = {"logprobs": grown.logprobs} if kind == "message" else {}
        return self._event(
            f"response.{TEXT_EVENTS[kind]}.delta", **place, content_index=0, delta=grown.delta, **logprobs
        )

    def _added(self, grown: Grown) -> bytes:
        """Return the frames of a new item. It begins without parts; a text has one, which begins next."""
        if grown.item["type"] == "function_call":
            return self._event("response.output_item.added", output_index=grown.index, item=grown.item)
        bare = {**grown.item, "content": []}
        begun = self._event("response.output_item.added", output_index=grown.index, item=bare)
        return begun + self._part("added", grown, _empty_part(grown.item))

    def _done(self, grown: Grown) -> bytes:
        item = grown.item
        place = {"item_id": item["id"], "output_index": grown.index}
        if item["type"] == "function_call":
            frames = self._event(
                "response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"]
            )
        else:
            [part] = item["content"]
            logprobs = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
            frames = self._event(
                f"response.{TEXT_EVENTS[item['type']]}.done", **place, content_index=0, text=part["text"], **logprobs
            )
            frames += self._part("done", grown, part)
        return frames + self._event("response.output_item.done", output_index=grown.index, item=item)

    def _part(self, word: str, grown: Grown, part: dict[str, Any]) -> bytes:
        place = {"item_id": grown.item["id"], "output_index": grown.index, "content_index": 0}
        return self._event(f"response.content_part.{word}", **place, part=part)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._num_events
        self._num_events += 1
        if number <= self._after:
            return b""
        data = compact_json({"type": kind, "sequence_number": number, **fields})
        return f"event: {kind}\ndata: {data}\n\n".encode("ascii")


def _empty_part(item: Item) -> dict[str, Any]:
    if item["type"] == "reasoning":
        return {"type": "reasoning_text", "text": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
