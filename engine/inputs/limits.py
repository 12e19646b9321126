"""The checks between token ids and the core: does the prompt fit, how many tokens may each choice have, are its ids real.

Runs after tokenising, `prompt_chars` before it; nothing has reached the core yet. Messages name the value, the limit and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest, RawPrompt, Task
from engine.inputs.template import MAX_OUTPUT_CHARS
from engine.messages import ProcessorSpec

POOLINGS = ("mean", "last")
READ_CHARS, READ_CHARS_PER_TOKEN = 1 << 20, 8
"""Text that is only read has at most so many characters, or the second for each token of the context if that is more."""


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Of a loaded model: positions per sequence, logits per position, the logits processors of its core, and numbers per hidden state."""

    max_model_len: int
    logits_width: int
    processors: tuple[ProcessorSpec, ...] = ()
    hidden_size: int = 0


def choice_token_limit(request: GenerationRequest, num_prompt_tokens: int, limits: ContextLimits) -> int:
    """Check the request against the model and return the token limit that holds per choice: 0 for the prompt alone, which may fill the
    context. Raises RequestError."""
    asked, context = request.stop.max_tokens, limits.max_model_len
    check_not_empty(request, num_prompt_tokens)
    has_room = num_prompt_tokens + (asked or 0) <= context or not request.stop.must_fit
    if num_prompt_tokens > (context if asked == 0 else context - 1) or not has_room:
        raise context_length_exceeded(num_prompt_tokens, request, context)
    if asked is not None and not 0 <= asked <= context:
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


def check_not_empty(request: GenerationRequest, num_prompt_tokens: int) -> None:
    """There must be something to go on from. Raises RequestError."""
    if num_prompt_tokens:
        return
    if request.raw is not None:
        raise RequestError(ErrorCode.INVALID_VALUE, f"{request.raw.param} must not be empty", request.raw.param)
    raise RequestError(ErrorCode.INVALID_VALUE, "the prompt is empty: the messages render to no tokens", "messages")


def check_embedding(request: GenerationRequest, num_prompt_tokens: int, limits: ContextLimits) -> None:
    """A prompt that becomes a vector may fill the whole context. Raises RequestError."""
    check_not_empty(request, num_prompt_tokens)
    if num_prompt_tokens > limits.max_model_len:
        raise context_length_exceeded(num_prompt_tokens, request, limits.max_model_len)
    if request.embed.pooling not in POOLINGS:
        message = f"pooling must be one of {', '.join(POOLINGS)}, got {request.embed.pooling[:200]!r}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "pooling")
    dimensions = request.embed.dimensions
    if dimensions is not None and not 1 <= dimensions <= limits.hidden_size:
        message = f"dimensions must be from 1 to {limits.hidden_size}, the length of this model's vectors, got {dimensions}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "dimensions")


def check_prompt_ids(prompt_ids: list[int], limits: ContextLimits, raw: RawPrompt | None = None) -> None:
    """A tokenizer may know tokens that its model does not, and clients send any; one would fail the whole step. Raises RequestError."""
    width = limits.logits_width
    if raw is not None and raw.token_ids is not None:
        wrong = next(((place, token_id) for place, token_id in enumerate(raw.token_ids) if not 0 <= token_id < width), None)
        if wrong is not None:
            param = f"{raw.param}.{wrong[0]}"
            message = f"{param} must be a token id of this model, from 0 to {width - 1}, got {wrong[1]}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
    unknown = max(prompt_ids, default=0)
    if unknown >= width:
        place, param = ("the prompt holds", raw.param) if raw is not None else ("the messages hold", "messages")
        message = f"{place} a token that the model does not have: {unknown}, its ids end at {width - 1}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, param)


def prompt_chars(request: GenerationRequest, longest_token_chars: int, max_model_len: int) -> int:
    """How many characters of prompt are worth tokenising: what could fit the context, more of what is only read, any of what is cut."""
    if request.prompt.truncate_to is not None:
        return MAX_OUTPUT_CHARS
    if request.task is Task.READ:
        return min(MAX_OUTPUT_CHARS, max(READ_CHARS, READ_CHARS_PER_TOKEN * max_model_len))
    return min(MAX_OUTPUT_CHARS, max_model_len * longest_token_chars)


def prompt_too_long(request: GenerationRequest, max_chars: int, max_model_len: int) -> RequestError:
    """The refusal of text that has more than `max_chars`, which are those of `prompt_chars`."""
    if max_chars >= MAX_OUTPUT_CHARS or request.task is Task.READ:
        param = request.raw.param if request.raw is not None else "messages"
        return RequestError(ErrorCode.INVALID_VALUE, f"the prompt must have at most {max_chars} characters", param)
    # NOTE: the count is a lower bound; counting exactly is the work that this check avoids.
    return context_length_exceeded(max_model_len + 1, request, max_model_len)


def context_length_exceeded(num_prompt_tokens: int, request: GenerationRequest, context: int) -> RequestError:
    """The refusal in the words that clients search for."""
    max_tokens = request.stop.max_tokens if request.task is Task.GENERATE else None
    completion = f", {max_tokens} in the completion" if max_tokens is not None else ""
    place, param = ("messages", "messages") if request.raw is None else ("prompt", request.raw.param)
    message = (
        f"This model's maximum context length is {context} tokens. However, you requested {num_prompt_tokens + (max_tokens or 0)} tokens "
        f"({num_prompt_tokens} in the {place}{completion}). "
        "Please reduce the length of the messages or completion. (context_length_exceeded)"
    )
    return RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param)
