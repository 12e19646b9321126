"""`truncation: "auto"`: the oldest items give way until the prompt and the answer fit into the context.

How many tokens messages are only a worker knows; it reads the prompt, which uses nothing, as often as it takes to find what fits. What the
client says stays in the store as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chat.api.answering.accepting import Accepted
from chat.api.answering.admission import admission_wait
from chat.api.answering.starting import run_start
from chat.api.responses.messages import Message, Origin
from engine.api import Admitted, EngineError, Task

MAX_READINGS = 8
KEPT_ROLES = ("system", "developer")


async def messages_fit(accepted: Accepted) -> None:
    """Leave out the oldest messages of the values, as many as must be; what cannot fit at all is refused by the run itself."""
    values = accepted.values
    for _ in range(MAX_READINGS):
        try:
            admitted = await _read(accepted)
        except EngineError:
            return
        room = (admitted.context_length or 0) - (values["max_completion_tokens"] or 1)
        excess = admitted.num_prompt_tokens - room
        if excess <= 0 or admitted.context_length is None:
            return
        kept = messages_shorten(values["messages"], excess / admitted.num_prompt_tokens)
        if len(kept) == len(values["messages"]):
            return
        _keep(values, kept)


def messages_shorten(messages: list[Message], share: float) -> list[int]:
    """The places of the messages that stay when about `share` of the text goes, at least one message where one may.

    Instructions stay, and the last message does with what it answers: results never stand without their calls.
    """
    first = next((index for index, message in enumerate(messages) if message["role"] not in KEPT_ROLES), len(messages))
    begins = [index for index in range(first + 1, len(messages)) if messages[index]["role"] != "tool"]
    sizes = [
        len(str(message.get("content") or "")) + len(str(message.get("tool_calls") or "")) + 1 for message in messages
    ]
    last = next(
        (index for index in reversed(begins) if messages[index]["role"] == "user"), begins[-1] if begins else None
    )
    wanted = share * sum(sizes)
    dropped = 0
    begin = first
    while (
        begin != last and last is not None and (dropped < wanted or begin == first or messages[begin]["role"] == "tool")
    ):
        dropped += sizes[begin]
        begin += 1
    return [*range(first), *range(begin, len(messages))]


def _keep(values: dict[str, Any], kept: list[int]) -> None:
    names: list[Origin] = values["names"]
    values["messages"], values["names"] = (
        [values["messages"][index] for index in kept],
        [names[index] for index in kept],
    )


async def _read(accepted: Accepted) -> Admitted:
    values = {**accepted.values, "task": Task.READ, "is_further": True, "detach": None}
    run = await run_start(replace(accepted, values=values))
    try:
        admitted = await admission_wait(run)
        async for _ in run.reader:
            pass
        return admitted
    finally:
        run.reader.leave()
