"""The random stream of a sequence: numbers that depend on (seed, position) only, never on device, batch or history.

Each draw takes one uniform number from a hash of seed and position. Why: docs/decisions/0002-counter-based-sampling.md.
Method: counter-based generators, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), with BLAKE2b as
the mixer.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

_COUNTER = Struct("<QQ")
_WORD = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """Return the number in [0, 1) of this seed at this position, with all 53 bits of a double."""
    digest = blake2b(_COUNTER.pack(seed & _WORD, position & _WORD), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
