"""The checks of a tokenised request against the loaded model: context length, token limit, token ids, processor calls.

They run after tokenising and before the request reaches the core; engine.api.prompt_size has the checks that need no
tokens. Every message names the value, the limit and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.api.model import KINDS_OF_TASKS, ModelKind
from engine.api.prompt_size import context_length_exceeded
from engine.api.request import GenerationRequest, RawPrompt, SamplingParams
from engine.inputs.images import PromptMedia
from engine.messages import ProcessorSpec
from engine.sampling.processors.arguments import bind_arguments

POOLINGS = (None, "mean", "last")
KIND_TEXTS = {
    ModelKind.CHAT: ("a chat model", "/v1/chat/completions"),
    ModelKind.EMBEDDING: ("an embedding model", "/v1/embeddings"),
    ModelKind.RERANKER: ("a reranker", "/v1/rerank"),
    ModelKind.TRANSCRIBER: ("a model that writes down speech", "/v1/audio/transcriptions"),
}
"""What a kind is called, and its route."""


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """The limits of a loaded model, as its core reports them."""

    max_model_len: int
    """Positions per sequence."""
    logits_width: int
    """Logits per position: token ids are below it."""
    processors: tuple[ProcessorSpec, ...] = ()
    """The logits processors that requests may name."""
    hidden_size: int = 0
    """Numbers per hidden state."""
    computed_by: str = ""
    """No limit: which form each part of the model runs in, for the operator."""
    longest_chunk: int = 0
    """The most tokens that a step computes of a prompt; 0: there is no such bound."""


def choice_token_limit(request: GenerationRequest, num_prompt_tokens: int, limits: ContextLimits) -> int:
    """Return the token limit of each choice. Raises RequestError.

    A request for the prompt alone has the limit 0; its prompt may fill the whole context.
    """
    asked, context = request.stop.max_tokens, limits.max_model_len
    check_not_empty(request, num_prompt_tokens)
    has_room = num_prompt_tokens + (asked or 0) <= context or not request.stop.must_fit
    if num_prompt_tokens > (context if asked == 0 else context - 1) or not has_room:
        raise context_length_exceeded(num_prompt_tokens, request, context)
    if asked is not None and asked < 0:
        raise RequestError(ErrorCode.INVALID_VALUE, f"max_tokens must be at least 1, got {asked}", "max_tokens")
    wanted = request.stop.absent_max_tokens if asked is None else asked
    max_tokens = min(context if wanted is None else wanted, context - num_prompt_tokens)
    if not 0 <= request.stop.min_tokens <= max_tokens:
        message = f"min_tokens must be from 0 to the token limit of {max_tokens}, got {request.stop.min_tokens}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "min_tokens")
    return max_tokens


def check_token_ids(request: GenerationRequest, limits: ContextLimits) -> None:
    """Check that every token id in the request has a logit. Raises RequestError.

    An id beyond the width would be read or written in the row of another sequence.
    """
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
            message = (
                f"{param} must hold ids from 0 to {limits.logits_width - 1}, the token ids of this model, got {unknown}"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
    if sampling.allowed_token_ids == ():
        raise RequestError(
            ErrorCode.INVALID_VALUE,
            "allowed_token_ids must hold at least one id; leave it out to allow all",
            "allowed_token_ids",
        )


def check_alternatives(request: GenerationRequest, limits: ContextLimits) -> None:
    """Check -1 alternatives (the whole vocabulary) against the limit per position. Raises RequestError."""
    options = request.logprobs
    if options.max_all is None or limits.logits_width <= options.max_all:
        return
    for param, number in (("top_logprobs", options.top), ("prompt_logprobs", options.prompt)):
        if number == -1:
            message = (
                f"{param} must be at most {options.max_all}; -1 asks for the whole vocabulary, "
                f"{limits.logits_width} tokens"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)


def check_not_empty(request: GenerationRequest, num_prompt_tokens: int) -> None:
    """Refuse an empty prompt: the model needs one token to continue from. Raises RequestError."""
    if num_prompt_tokens:
        return
    if request.raw is not None:
        raise RequestError(ErrorCode.INVALID_VALUE, f"{request.raw.param} must not be empty", request.raw.param)
    raise RequestError(ErrorCode.INVALID_VALUE, "the prompt is empty: the messages render to no tokens", "messages")


def check_kind(request: GenerationRequest, kind: ModelKind) -> None:
    """Check that a model of this kind can do what a request asks for. Raises RequestError."""
    wanted = KINDS_OF_TASKS.get(request.task)
    if wanted is None or kind in wanted:
        return
    message = (
        f"model must name {KIND_TEXTS[wanted[0]][0]} here: {request.model[:200]!r} is {KIND_TEXTS[kind][0]}, which "
        f"answers {KIND_TEXTS[kind][1]}"
    )
    raise RequestError(ErrorCode.INVALID_VALUE, message, "model")


def check_embedding(request: GenerationRequest, num_prompt_tokens: int, limits: ContextLimits) -> None:
    """Check a prompt that becomes a vector; it may fill the whole context. Raises RequestError."""
    check_not_empty(request, num_prompt_tokens)
    if num_prompt_tokens > limits.max_model_len:
        raise context_length_exceeded(num_prompt_tokens, request, limits.max_model_len)
    if request.embed.pooling not in POOLINGS:
        known = ", ".join(pooling for pooling in POOLINGS if pooling)
        message = f"pooling must be one of {known}, got {str(request.embed.pooling)[:200]!r}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "pooling")
    dimensions = request.embed.dimensions
    if dimensions is not None and not 1 <= dimensions <= limits.hidden_size:
        message = (
            f"dimensions must be from 1 to {limits.hidden_size}, the length of this model's vectors, got {dimensions}"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message, "dimensions")


def check_prompt_ids(prompt_ids: list[int], limits: ContextLimits, raw: RawPrompt | None = None) -> None:
    """Check the ids of the prompt. Raises RequestError.

    Clients send any ids, and a tokenizer may have tokens that its model lacks. One such id would fail the whole step.
    """
    width = limits.logits_width
    if raw is not None and raw.token_ids is not None:
        wrong = next(
            ((place, token_id) for place, token_id in enumerate(raw.token_ids) if not 0 <= token_id < width), None
        )
        if wrong is not None:
            param = f"{raw.param}.{wrong[0]}"
            message = f"{param} must be a token id of this model, from 0 to {width - 1}, got {wrong[1]}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
    unknown = max(prompt_ids, default=0)
    if unknown >= width:
        place, param = ("the prompt holds", raw.param) if raw is not None else ("the messages hold", "messages")
        message = f"{place} a token that the model does not have: {unknown}, its ids end at {width - 1}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, param)


def check_given(media: PromptMedia, limits: ContextLimits) -> None:
    """Check the width of vectors that were sent. Raises RequestError."""
    for param, width in media.given:
        if width != limits.hidden_size:
            message = f"{param} must have rows of {limits.hidden_size} numbers, the width of this model; got {width}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)


def check_processors(sampling: SamplingParams, limits: ContextLimits) -> None:
    """Check that every logits processor is registered and gets the arguments it declares. Raises RequestError.

    Names are looked up in what the core has reported; nothing is imported.
    """
    specs = {spec.name: spec for spec in limits.processors}
    for index, call in enumerate(sampling.processors):
        spec = specs.get(call.name)
        if spec is None:
            known = ", ".join(sorted(specs)) or "none"
            message = f"there is no logits processor {call.name[:200]!r}; this server has {known[:600]}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, "logits_processors")
        bind_arguments(spec, call, sampling.processor_args, limits.logits_width, f"logits_processors.{index}")
