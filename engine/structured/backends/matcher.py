"""The protocol of a grammar that follows one sequence, whatever library implements it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int32]
"""One row of a bitmask: bit `i % 32` of word `i // 32` is set if token i is admitted."""


class MatcherFailed(Exception):
    """A grammar cannot be built or cannot go on, as following it has become too complex."""


class Matcher(Protocol):
    """A matcher of text tokens. End tokens are not part of a grammar and never set in its masks."""

    def fill(self, words: Words) -> None:
        """Write the mask of the next token over the row. Any thread may call it. Raises MatcherFailed."""

    def accept(self, token_id: int) -> bool:
        """Take the next token. Return False, with nothing changed, if it is not admitted. Raises MatcherFailed."""

    def rollback(self, num_tokens: int) -> None:
        """Withdraw the last tokens."""

    def can_end(self) -> bool:
        """Return True if the text is complete as it stands."""

    def is_complete(self) -> bool:
        """Return True if only the end can come. May return False although the next mask will be empty."""


class GrammarTemplate(Protocol):
    """A grammar that was built once."""

    def start(self) -> Matcher:
        """Return a matcher at the beginning. Cheap."""


def bit_of(token_id: int) -> int:
    """Return the bit of a token in its word, as a signed number of 32 bits."""
    return 1 << token_id % 32 if token_id % 32 < 31 else -(1 << 31)


def clear_bit(token_id: int) -> int:
    """Return all other bits of the token's word."""
    return ~bit_of(token_id)
