"""Write log-probabilities: those of generated tokens in OpenAI's shape, those of the prompt in vLLM's.

With `by_id` (return_tokens_as_token_ids) `token_id:N` replaces the text of a token; `bytes` stay the token's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.api import PromptScored, RankedLogprob, TokenLogprob, TopLogprob

LOWEST_LOGPROB = -9999.0


def logprobs_object(entries: Iterable[TokenLogprob], *, by_id: bool) -> dict[str, Any]:
    return {"content": [logprob_object(entry, by_id=by_id) for entry in entries], "refusal": None}


def logprob_object(entry: TokenLogprob, *, by_id: bool) -> dict[str, Any]:
    return {**_fields(entry, by_id), "top_logprobs": [_fields(other, by_id) for other in entry.top]}


def prompt_logprobs_list(scored: PromptScored) -> list[dict[str, Any] | None]:
    """Return one entry per token of the prompt; null for the first, which has nothing before it."""
    return [{str(token.token_id): _ranked(token) for token in entry} if entry else None for entry in scored.entries]


def _fields(entry: TokenLogprob | TopLogprob, by_id: bool) -> dict[str, Any]:
    token = f"token_id:{entry.token_id}" if by_id else entry.token
    return {"token": token, "logprob": finite_logprob(entry.logprob), "bytes": list(entry.token_bytes)}


def _ranked(token: RankedLogprob) -> dict[str, Any]:
    return {"logprob": finite_logprob(token.logprob), "rank": token.rank, "decoded_token": token.token}


def finite_logprob(logprob: float) -> float:
    """Return the number as JSON can hold it. NaN too becomes the lowest value."""
    return logprob if logprob > LOWEST_LOGPROB else LOWEST_LOGPROB
