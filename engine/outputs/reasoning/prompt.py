"""Finds the state of reasoning at the end of a prompt, by its markers after the last header.

Markers that are single tokens are compared as tokens, so that a marker which a client typed as text does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.request import GenerationRequest
from engine.outputs.reasoning.formats import HARMONY, ReasoningFormat
from engine.outputs.reasoning.harmony import START
from engine.outputs.reasoning.parser import ReasoningState
from engine.tokenizers.tokenizer import Tokenizer

SWITCHES = ("thinking", "enable_thinking")


def prompt_reasoning_state(
    format: ReasoningFormat, tokenizer: Tokenizer, request: GenerationRequest, prompt_ids: list[int]
) -> ReasoningState:
    """Return the state of reasoning that the prompt and the request's switches imply.

    A continued message without an open marker has no reasoning.
    """
    if format.name == HARMONY:
        return ReasoningState.CLOSED if format.ends[0] in harmony_head(tokenizer, prompt_ids) else ReasoningState.OPEN
    is_wanted = _switch(format, request)
    if is_wanted is False:
        return ReasoningState.CLOSED
    state = _marked_state(format, tokenizer, prompt_ids)
    if state is ReasoningState.UNKNOWN and (
        request.prompt.continue_final_message or (format.switch is False and not is_wanted)
    ):
        return ReasoningState.CLOSED
    return state


def harmony_head(tokenizer: Tokenizer, prompt_ids: list[int]) -> str:
    """Return the text after the last `<|start|>` of the prompt."""
    start_id = tokenizer.backend.token_to_id(START)
    index = next(
        (index for index in reversed(range(len(prompt_ids))) if prompt_ids[index] == start_id), len(prompt_ids) - 1
    )
    return _text(tokenizer, prompt_ids[index + 1 :])


def _switch(format: ReasoningFormat, request: GenerationRequest) -> bool | None:
    """Return the thinking switch of the request, None if it sets none or the format has no switch."""
    values = [bool(request.prompt.template_kwargs[name]) for name in SWITCHES if name in request.prompt.template_kwargs]
    return any(values) if values and format.switch is not None else None


def _marked_state(format: ReasoningFormat, tokenizer: Tokenizer, prompt_ids: list[int]) -> ReasoningState:
    """Return the state by the last marker after the last header."""
    head = _answer_head(format, tokenizer, prompt_ids)
    if format.vocabulary:
        start, end = _last_id(tokenizer, head, format.starts), _last_id(tokenizer, head, format.ends)
    else:
        text = _text(tokenizer, head)
        start, end = max(map(text.rfind, format.starts)), max(map(text.rfind, format.ends))
    if start == end:
        return ReasoningState.UNKNOWN
    return ReasoningState.OPEN if start > end else ReasoningState.CLOSED


def _answer_head(format: ReasoningFormat, tokenizer: Tokenizer, prompt_ids: list[int]) -> list[int]:
    """Return the prompt after its last control token that is no marker: the rest of the header and a begun answer."""
    markers = {tokenizer.backend.token_to_id(text) for text in format.control_texts}
    for index in reversed(range(len(prompt_ids))):
        token_id = prompt_ids[index]
        if (tokenizer.is_special(token_id) or token_id in tokenizer.eos_ids) and token_id not in markers:
            return prompt_ids[index + 1 :]
    return prompt_ids


def _last_id(tokenizer: Tokenizer, token_ids: Sequence[int], texts: tuple[str, ...]) -> int:
    """Return the index of the last of these markers, -1 if there is none."""
    wanted = {token_id for text in texts if (token_id := tokenizer.backend.token_to_id(text)) is not None}
    return next((index for index in reversed(range(len(token_ids))) if token_ids[index] in wanted), -1)


def _text(tokenizer: Tokenizer, token_ids: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode(errors="replace")
