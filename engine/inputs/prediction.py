"""The predicted text of a request as draft tokens. It can only speed an answer up, so whatever of it is of no use is left out."""

from __future__ import annotations

from itertools import takewhile

from engine.tokenizers.tokenizer import Tokenizer

CHARS_PER_TOKEN = 16
"""Of a text that is worth predicting; what is cut off of any other is only not predicted."""


def prediction_ids(prediction: str, tokenizer: Tokenizer, max_tokens: int, logits_width: int) -> list[int]:
    """Token ids that the answer is expected to begin with: at most `max_tokens`, up to the first that the model does not have.

    The text is cut before it is tokenised, so that a long one costs no more than the answer may be long.
    """
    token_ids = tokenizer.encode_ordinary(prediction[: max_tokens * CHARS_PER_TOKEN])[:max_tokens]
    return list(takewhile(lambda token_id: token_id < logits_width, token_ids))
