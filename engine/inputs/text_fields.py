"""Request fields that are text and reach the core as token ids: `bad_words` and `prediction`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.limits import ContextLimits
from engine.tokenizers.tokenizer import Tokenizer

MAX_BAD_WORD_TOKENS = 1_024
"""All words together, each counted once, as it is written."""
CHARS_PER_TOKEN = 16
"""A prediction is cut to this many characters for each token of the limit. Ordinary text has fewer, so it loses
none."""


def bad_word_ids(words: Sequence[str], tokenizer: Tokenizer, limits: ContextLimits) -> list[list[int]]:
    """Return the token sequences to forbid: each word as it is and with a leading space. Raises RequestError.

    A word is tokenised differently at the start of a text and within it.
    """
    spellings: dict[tuple[int, ...], None] = {}
    num_tokens = 0
    for word in words:
        plain, spaced = tuple(tokenizer.encode(word)), tuple(tokenizer.encode(" " + word))
        num_tokens += len(plain)
        if num_tokens > MAX_BAD_WORD_TOKENS:
            raise _refusal(
                f"bad_words must hold at most {MAX_BAD_WORD_TOKENS} tokens together; send fewer or shorter words"
            )
        if not plain:
            raise _refusal("bad_words must not hold empty words")
        unknown = max(plain + spaced)
        if unknown >= limits.logits_width:
            message = (
                f"bad_words hold {word[:200]!r}, which is token {unknown}; "
                f"this model has the tokens 0 to {limits.logits_width - 1} only"
            )
            raise _refusal(message)
        spellings |= {plain: None, spaced: None}
    return [list(spelling) for spelling in spellings]


def _refusal(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, "bad_words")


def prediction_ids(prediction: str, tokenizer: Tokenizer, max_tokens: int, logits_width: int) -> list[int]:
    """Return the predicted text as draft tokens: at most `max_tokens`, up to the first id that the model does not have.

    The text is cut before it is tokenised, so the cost is bounded by the limit of the answer. Nothing is refused: a
    prediction only speeds the answer up.
    """
    token_ids = tokenizer.encode_ordinary(prediction[: max_tokens * CHARS_PER_TOKEN])[:max_tokens]
    return list(takewhile(lambda token_id: token_id < logits_width, token_ids))
