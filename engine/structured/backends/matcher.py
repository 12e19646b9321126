"""What the core needs of a grammar that follows one sequence, whatever library is behind it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int32]
"""One row of a bitmask: bit `i % 32` of word `i // 32` is set where token i is allowed."""


class MatcherFailed(Exception):
    """A grammar cannot be built or cannot go on: following it has become too complex."""


class Matcher(Protocol):
    """Text tokens only: ends of answers are no part of a grammar, and are never set in its masks."""

    def fill(self, words: Words) -> None:
        """Write the mask of the next token over the row. May be called from a thread. Raises MatcherFailed."""

    def accept(self, token_id: int) -> bool:
        """Take the next token; False, and nothing changed, if it is not allowed. Raises MatcherFailed."""

    def rollback(self, num_tokens: int) -> None:
        """Withdraw the last tokens."""

    def can_end(self) -> bool:
        """Whether the text is complete as it stands."""

    def is_complete(self) -> bool:
        """Whether the end is all that can come. May say False although the next mask will be empty."""


class GrammarTemplate(Protocol):
    """A grammar that has been built once."""

    def start(self) -> Matcher:
        """A matcher at the beginning; cheap."""


def bit_of(token_id: int) -> int:
    """The bit of a token in its word, as a signed number of 32 bits."""
    return 1 << token_id % 32 if token_id % 32 < 31 else -(1 << 31)


def clear_bit(token_id: int) -> int:
    """All other bits of its word."""
    return ~bit_of(token_id)
