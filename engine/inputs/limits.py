"""The checks between token ids and the core: does the prompt fit, how many tokens may each choice have, are its ids real.

Runs after tokenising; nothing has reached the core yet. Messages name the value, the limit and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest
from engine.messages import ProcessorSpec


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Of a loaded model: positions per sequence, logits per position, and the logits processors of its core."""

    max_model_len: int
    logits_width: int
    processors: tuple[ProcessorSpec, ...] = ()


def choice_token_limit(request: GenerationRequest, num_prompt_tokens: int, limits: ContextLimits) -> int:
    """Check the request against the model and return the token limit that holds per choice. Raises RequestError."""
    asked, context = request.stop.max_tokens, limits.max_model_len
    if num_prompt_tokens == 0:
        raise RequestError(ErrorCode.INVALID_VALUE, "the prompt is empty: the messages render to no tokens", "messages")
    if num_prompt_tokens >= context:
        raise context_length_exceeded(num_prompt_tokens, asked, context)
    if asked is not None and not 1 <= asked <= context:
        message = f"max_tokens must be from 1 to {context}, the model's context length, got {asked}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "max_tokens")
    wanted = request.stop.absent_max_tokens if asked is None else asked
    max_tokens = min(context if wanted is None else wanted, context - num_prompt_tokens)
    if not 0 <= request.stop.min_tokens <= max_tokens:
        message = f"min_tokens must be from 0 to the token limit of {max_tokens}, got {request.stop.min_tokens}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "min_tokens")
    return max_tokens


def check_token_ids(request: GenerationRequest, limits: ContextLimits) -> None:
    """Every id that the request names must have a logit: one that has none would be read or written in another row. Raises RequestError."""
    sampling = request.sampling
    named = {
        "logit_bias": [token_id for token_id, _ in sampling.logit_bias],
        "stop_token_ids": request.stop.stop_token_ids,
        "allowed_token_ids": sampling.allowed_token_ids or (),
        "logprob_token_ids": request.logprobs.token_ids,
    }
    for param, token_ids in named.items():
        unknown = next((token_id for token_id in token_ids if not 0 <= token_id < limits.logits_width), None)
        if unknown is not None:
            message = f"{param} must hold ids from 0 to {limits.logits_width - 1}, the token ids of this model, got {unknown}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
    if sampling.allowed_token_ids == ():
        raise RequestError(
            ErrorCode.INVALID_VALUE, "allowed_token_ids must hold at least one id; leave it out to allow all", "allowed_token_ids"
        )


def check_alternatives(request: GenerationRequest, limits: ContextLimits) -> None:
    """The whole vocabulary counts as its size against the limit of alternatives per position. Raises RequestError."""
    options = request.logprobs
    if options.max_all is None or limits.logits_width <= options.max_all:
        return
    for param, number in (("top_logprobs", options.top), ("prompt_logprobs", options.prompt)):
        if number == -1:
            message = f"{param} must be at most {options.max_all}; -1 asks for the whole vocabulary, {limits.logits_width} tokens"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)


def check_prompt_ids(prompt_ids: list[int], limits: ContextLimits) -> None:
    """A tokenizer may know tokens that its model does not; one such id would fail the whole step. Raises RequestError."""
    unknown = max(prompt_ids)
    if unknown >= limits.logits_width:
        message = f"the messages hold a token that the model does not have: {unknown}, its ids end at {limits.logits_width - 1}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "messages")


def context_length_exceeded(num_prompt_tokens: int, max_tokens: int | None, context: int) -> RequestError:
    """The refusal in the words that clients search for."""
    completion = f", {max_tokens} in the completion" if max_tokens is not None else ""
    message = (
        f"This model's maximum context length is {context} tokens. However, you requested {num_prompt_tokens + (max_tokens or 0)} tokens "
        f"({num_prompt_tokens} in the messages{completion}). "
        "Please reduce the length of the messages or completion. (context_length_exceeded)"
    )
    return RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, "messages")
