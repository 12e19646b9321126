"""What a request is charged before its worker has counted its tokens. The end of the run settles the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from chat.relay.state.meters import Cost
from engine.api import GenerationRequest, Task

CHARS_PER_TOKEN = 4
USUAL_OUTPUT_TOKENS = 512
TEMPLATE_TOKENS, MESSAGE_TOKENS = 256, 32
"""What chat templates add to a prompt, and to each message, at most."""


def request_cost(request: GenerationRequest, messages: Sequence[Any], *, context: int | None = None) -> Cost:
    """Return the cost of a request. `messages` are those that were sent; `context`: the tokens of its model, if known.

    The estimate, for rates, takes four characters for a token. The bound, for hard budgets, takes a byte for one.
    """
    if request.task is Task.READ:
        return Cost()
    num_chars, num_bytes = _size(request, messages)
    bound = num_bytes + TEMPLATE_TOKENS + MESSAGE_TOKENS * len(messages)
    bound = bound if context is None else min(bound, context)
    if request.task in (Task.EMBED, Task.SCORE):
        return Cost(input_tokens=num_chars // CHARS_PER_TOKEN, input_bound=bound)
    stop, answers = request.stop, request.num_sequences
    is_open = stop.max_tokens is None
    asked = stop.absent_max_tokens if stop.max_tokens is None else stop.max_tokens
    usual = min(asked or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS) if is_open else min(asked or 0, USUAL_OUTPUT_TOKENS)
    most = min((size for size in (asked, context) if size is not None), default=-1)
    return Cost(
        input_tokens=num_chars // CHARS_PER_TOKEN,
        output_tokens=usual * answers,
        input_bound=bound,
        output_bound=most,
        num_answers=answers,
        min_tokens=max(0, stop.min_tokens),
        is_open=is_open,
    )


def _size(request: GenerationRequest, messages: Sequence[Any]) -> tuple[int, int]:
    """Return the characters of a prompt, and the bytes that its tokens cannot outnumber."""
    raw = request.raw
    if raw is None:
        contents = [str(message.get("content") or "") for message in messages if isinstance(message, dict)]
        sent = json.dumps([messages, [tool.spec for tool in request.tools]], ensure_ascii=False, default=str)
        return sum(map(len, contents)), len(sent.encode(errors="surrogatepass"))
    num_ids = len(raw.token_ids or ())
    chars = len(raw.text) + len(raw.suffix or "") + CHARS_PER_TOKEN * num_ids
    document = raw.document or ""
    chars += min(len(document), CHARS_PER_TOKEN * (raw.max_document_tokens or len(document)))
    texts = (raw.text, raw.suffix or "", document)
    return chars, num_ids + sum(len(text.encode(errors="surrogatepass")) for text in texts)
