"""Limits on the characters of a prompt: the web checks them before it enqueues, the engine before it tokenises.

A token has a bounded number of characters, so a text longer than a whole context of the longest tokens cannot fit.
"""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest, Message, Task

MAX_PROMPT_CHARS = 8_000_000
"""The limit of any prompt, whatever its task."""
READ_CHARS, READ_CHARS_PER_TOKEN = 1 << 20, 8
"""The limit of a READ prompt in characters; the second, per token of the context, counts if it is more."""
READ_CHARS_PER_ID = 2
"""A READ prompt may have one token id for this many characters of its limit. Only text that is no writing has more."""
SHORT_PROMPT = 1 << 14
"""A prompt of at most this many characters or token ids is sent to the model without asking for its context."""
END_OF_THOUGHT = "</think>"


def prompt_chars(request: GenerationRequest, longest_token_chars: int, max_model_len: int) -> int:
    """Return the most characters of a prompt that are worth tokenising.

    A prompt that will be truncated has only the limit of any prompt. A READ prompt has its own limit.
    """
    if request.prompt.truncate_to is not None:
        return MAX_PROMPT_CHARS
    if request.task is Task.READ:
        return min(MAX_PROMPT_CHARS, max(READ_CHARS, READ_CHARS_PER_TOKEN * max_model_len))
    return min(MAX_PROMPT_CHARS, max_model_len * longest_token_chars)


def prompt_tokens(request: GenerationRequest, max_model_len: int) -> int:
    """Return the most tokens of a prompt that is not truncated: those of the context, or more for a READ prompt."""
    return prompt_chars(request, 1, max_model_len) // READ_CHARS_PER_ID if request.task is Task.READ else max_model_len


def min_prompt_chars(request: GenerationRequest) -> int:
    """Return the least number of characters that the rendered prompt can have; 0 if that is unknown.

    Templates strip white space around messages and drop earlier reasoning, and may ignore tools, documents and files.
    """
    raw = request.raw
    if raw is not None:
        # NOTE: of a document perhaps only the beginning counts.
        return len(raw.text) + len(raw.suffix or "") + (len(raw.document or "") if not raw.max_document_tokens else 0)
    if request.prompt.chat_template is not None:
        return 0
    return sum(map(_min_message_chars, request.messages))


def is_long(request: GenerationRequest) -> bool:
    """Return True for a prompt that some model's context may be too short for; others are not worth asking for it."""
    return _num_ids(request) > SHORT_PROMPT or min_prompt_chars(request) > SHORT_PROMPT


def check_prompt_fits(request: GenerationRequest, longest_token_chars: int, max_model_len: int) -> None:
    """Refuse a request whose prompt is certainly too long. Raises RequestError."""
    num_ids = _num_ids(request)
    if num_ids > max_model_len and request.prompt.truncate_to is None and request.task is not Task.READ:
        raise context_length_exceeded(num_ids, request, max_model_len)
    max_chars = prompt_chars(request, longest_token_chars, max_model_len)
    if min_prompt_chars(request) > max_chars:
        raise prompt_too_long(request, max_chars, max_model_len)


def prompt_too_long(request: GenerationRequest, max_chars: int, max_model_len: int) -> RequestError:
    """Return the error for a text of more than `max_chars`, the result of `prompt_chars`."""
    if max_chars >= MAX_PROMPT_CHARS or request.task is Task.READ:
        message = f"the prompt must have at most {max_chars} characters"
        return RequestError(ErrorCode.INVALID_VALUE, message, _param(request))
    # NOTE: this count is a lower bound; the check exists to avoid the work of an exact count.
    return context_length_exceeded(max_model_len + 1, request, max_model_len)


def too_many_tokens(request: GenerationRequest, num_tokens: int, max_model_len: int) -> RequestError:
    """Return the error for a text of more than its `prompt_tokens`."""
    if request.task is not Task.READ:
        return context_length_exceeded(num_tokens, request, max_model_len)
    message = f"the prompt must have at most {prompt_tokens(request, max_model_len)} tokens; send it in pieces"
    return RequestError(ErrorCode.INVALID_VALUE, message, _param(request))


def context_length_exceeded(num_prompt_tokens: int, request: GenerationRequest, context: int) -> RequestError:
    """Return the error in the words that clients search for."""
    if request.raw is not None and request.raw.document is not None:
        return _pair_too_long(num_prompt_tokens, request, request.raw.param, context)
    max_tokens = request.stop.max_tokens if request.task is Task.GENERATE else None
    completion = f", {max_tokens} in the completion" if max_tokens is not None else ""
    place = "messages" if request.raw is None else "prompt"
    whose = "This model's maximum context length is"
    if request.max_context is not None and context >= request.max_context:
        whose = "The limits of this key, its account, its project or its organisation allow a context of"
    message = (
        f"{whose} {context} tokens. "
        f"However, you requested {num_prompt_tokens + (max_tokens or 0)} tokens "
        f"({num_prompt_tokens} in the {place}{completion}). "
        "Please reduce the length of the messages or completion. (context_length_exceeded)"
    )
    code = ErrorCode.CONTEXT_LENGTH_EXCEEDED
    return RequestError(code, message, _param(request), limit=context, value=num_prompt_tokens)


def _pair_too_long(num_tokens: int, request: GenerationRequest, param: str, context: int) -> RequestError:
    """Return the error for a query and a document of at least so many tokens."""
    message = (
        f"{param} is too long: with the query it has at least {num_tokens} tokens, and {request.model} takes "
        f"{context}; shorten it, or set max_tokens_per_doc. (context_length_exceeded)"
    )
    return RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param, limit=context, value=num_tokens)


def _param(request: GenerationRequest) -> str:
    return request.raw.param if request.raw is not None else "messages"


def _num_ids(request: GenerationRequest) -> int:
    return len(request.raw.token_ids or ()) if request.raw is not None else 0


def _min_message_chars(message: Message) -> int:
    content = message.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else [content]
    is_thinker = message.get("role") == "assistant"
    said = (text.rpartition(END_OF_THOUGHT)[2] if is_thinker else text for text in texts if isinstance(text, str))
    return sum(len(text.strip()) for text in said)
