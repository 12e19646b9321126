"""Words that an answer must not hold, as the token sequences that the sampler forbids."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.limits import ContextLimits
from engine.tokenizers.tokenizer import Tokenizer

MAX_TOKENS = 1_024
"""Of all words together, each counted as it is written."""


def bad_word_ids(words: Sequence[str], tokenizer: Tokenizer, limits: ContextLimits) -> list[list[int]]:
    """Tokenise each word as it is and with a leading space, as it stands at the start and in the middle of a text. Raises RequestError."""
    spellings: dict[tuple[int, ...], None] = {}
    num_tokens = 0
    for word in words:
        plain, spaced = tuple(tokenizer.encode(word)), tuple(tokenizer.encode(" " + word))
        num_tokens += len(plain)
        if num_tokens > MAX_TOKENS:
            raise _refusal(f"bad_words must hold at most {MAX_TOKENS} tokens together; send fewer or shorter words")
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
