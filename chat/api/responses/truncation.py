"""`truncation: "auto"`: drop the oldest items until the prompt and the answer fit into the context.

Only a worker can count the tokens of messages. It reads the prompt, which uses no tokens, as often as it takes to find
what fits. The store keeps the client's items as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chat.api.answering.pipeline import Accepted, run_start
from chat.api.answering.streaming import admission_wait
from chat.api.responses.messages import Message
from chat.api.responses.schema import ParsedResponse
from engine.api import Admitted, EngineError, Task

MAX_READINGS = 8
KEPT_ROLES = ("system", "developer")


async def messages_fit(accepted: Accepted[ParsedResponse]) -> Accepted[ParsedResponse]:
    """Return the request without its oldest messages, as many as must go. The run refuses what cannot fit at all."""
    for _ in range(MAX_READINGS):
        parsed = accepted.parsed
        try:
            admitted = await _read(accepted)
        except EngineError:
            return accepted
        room = (admitted.context_length or 0) - (parsed.generation.stop.max_tokens or 1)
        excess = admitted.num_prompt_tokens - room
        if excess <= 0 or admitted.context_length is None:
            return accepted
        kept = messages_shorten(parsed.messages, excess / admitted.num_prompt_tokens)
        if len(kept) == len(parsed.messages):
            return accepted
        messages, origins = parsed.messages, parsed.names.origins
        shortened = parsed.with_messages([messages[index] for index in kept], [origins[index] for index in kept])
        accepted = replace(accepted, parsed=shortened)
    return accepted


def messages_shorten(messages: Sequence[Message], share: float) -> list[int]:
    """Return the places of the messages that stay when about `share` of the text goes; at least one goes, if one may.

    Instructions stay, and so does the last message with those that it answers. Results never stand without their calls.
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


async def _read(accepted: Accepted[ParsedResponse]) -> Admitted:
    parsed = accepted.parsed
    reading = replace(
        parsed,
        generation=replace(parsed.generation, task=Task.READ),
        delivery=replace(parsed.delivery, is_further=True),
    )
    run = await run_start(replace(accepted, parsed=reading))
    try:
        admitted = await admission_wait(run)
        async for _ in run.reader:
            pass
        return admitted
    finally:
        run.reader.leave()
