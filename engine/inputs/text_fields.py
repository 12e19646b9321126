"""Words that an answer must not hold, as the token sequences that the sampler forbids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.limits import ContextLimits
from engine.tokenizers.tokenizer import Tokenizer

MAX_BAD_WORD_TOKENS = 1_024
"""Of all words together, each counted as it is written."""


def bad_word_ids(words: Sequence[str], tokenizer: Tokenizer, limits: ContextLimits) -> list[list[int]]:
    """Tokenise each word as it is and with a leading space, as it stands at the start and in the middle of a text. Raises RequestError."""
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


CHARS_PER_TOKEN = 16
"""Of a text that is worth predicting; what is cut off of any other is only not predicted."""


def prediction_ids(prediction: str, tokenizer: Tokenizer, max_tokens: int, logits_width: int) -> list[int]:
    """Token ids that the answer is expected to begin with: at most `max_tokens`, up to the first that the model does not have.

    The text is cut before it is tokenised, so that a long one costs no more than the answer may be long.
    """
    token_ids = tokenizer.encode_ordinary(prediction[: max_tokens * CHARS_PER_TOKEN])[:max_tokens]
    return list(takewhile(lambda token_id: token_id < logits_width, token_ids))
