"""The prefix cache: a map from a prefix of tokens to the computed block that ends it.

The key of a full block is SHA-256(digest of the block before it, its token ids); the parent of the first block is the
`cache_root` of the sequence, which stands for tenant and salt. So a digest identifies the whole prefix, a look-up walks
to the first miss, and sequences of different roots share nothing. Method: automatic prefix caching of vLLM (Kwon et
al., https://arxiv.org/abs/2309.06180, and its design notes).
"""

from __future__ import annotations

from array import array
from hashlib import sha256

from engine.sequence import Sequence


class BlockChain:
    """The digests of one sequence's full blocks of known tokens, computed once each and on demand."""

    __slots__ = ("digests",)

    def __init__(self) -> None:
        self.digests: list[bytes] = []

    def extend(self, sequence: Sequence, num_blocks: int, block_size: int) -> list[bytes]:
        """Return the digests of the first `num_blocks` blocks or more. They must be full of known tokens."""
        digests = self.digests
        known = len(digests)
        if known >= num_blocks:
            return digests
        parent = digests[-1] if digests else sequence.request.cache_root
        token_bytes = array("i", sequence.token_slice(known * block_size, num_blocks * block_size)).tobytes()
        width = len(token_bytes) // (num_blocks - known)
        for start in range(0, len(token_bytes), width):
            parent = sha256(parent + token_bytes[start : start + width]).digest()
            digests.append(parent)
        return digests


class PrefixCache:
    """A one-to-one map between digests and blocks. It holds no references to the blocks."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._digests

    def match(self, digests: list[bytes], limit: int) -> list[int]:
        """Return the blocks of the longest known prefix, at most `limit` of them."""
        block_ids: list[int] = []
        for digest in digests[:limit]:
            block_id = self._blocks.get(digest)
            if block_id is None:
                break
            block_ids.append(block_id)
        return block_ids

    def register(self, digest: bytes, block_id: int) -> None:
        """Add a computed full block. A digest that is known already keeps its first block."""
        if digest not in self._blocks and block_id not in self._digests:
            self._blocks[digest] = block_id
            self._digests[block_id] = digest

    def forget(self, block_id: int) -> None:
        """Remove a block, if it is in the cache."""
        digest = self._digests.pop(block_id, None)
        if digest is not None:
            del self._blocks[digest]

    def check_integrity(self) -> str:
        """Return what is wrong with the map, or ''."""
        if {block_id: digest for digest, block_id in self._blocks.items()} != self._digests:
            return "the prefix cache does not map digests and blocks one to one"
        return ""
