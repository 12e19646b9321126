"""The prefix cache: computed blocks by what they hold.

The prefix cache knows the blocks of a full span by SHA-256(digest of the span before it, its token ids); the parent of
the first is the `cache_root` of the sequence, which stands for tenant and salt. So a digest identifies the whole
prefix, and sequences of different roots share nothing. Spans with tokens of media add what these are, as their ids are
all the same. A hit needs every block of the groups without a window, and of
the others those that the next token sees. Method: automatic prefix caching of vLLM (Kwon et al.,
https://arxiv.org/abs/2309.06180, and its design notes).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import sha256

from engine.attention.cache_groups import NO_BLOCK, CacheGroups
from engine.messages import MediaSpan
from engine.sequence import Sequence


def extend_digests(digests: list[bytes], sequence: Sequence, num_spans: int, block_size: int) -> None:
    """Append to the digests of a sequence's first spans those up to span `num_spans`, full of known tokens.

    They begin at the cache root of its tenant and salt (`engine.requests.prepare`), so no other tenant has the same.
    """
    known = len(digests)
    if known >= num_spans:
        return
    parent = digests[-1] if digests else sequence.request.cache_root
    token_bytes = array("i", sequence.token_slice(known * block_size, num_spans * block_size)).tobytes()
    width = len(token_bytes) // (num_spans - known)
    media = sequence.request.media
    for number, start in enumerate(range(0, len(token_bytes), width), known):
        content = token_bytes[start : start + width]
        if media:
            content += media_bytes(media, number * block_size, (number + 1) * block_size)
        parent = sha256(parent + content).digest()
        digests.append(parent)


def media_bytes(media: list[MediaSpan], start: int, end: int) -> bytes:
    """Return what the tokens `start..end` of a prompt stand for where they stand for media; empty if none does."""
    parts = [
        f"{span.key} {span.start - start} {span.first};"
        for span in media
        if span.start < end and start < span.start + span.length
    ]
    return "".join(parts).encode()


class PrefixCache:
    """The digests of the blocks with content, and the blocks of each digest. It holds no references to the blocks."""

    def __init__(self, groups: CacheGroups) -> None:
        self._num_whole = groups.num_whole
        self._window_spans = [groups.window_spans(window) for window in groups.windows[groups.num_whole :]]
        self._nothing = [NO_BLOCK] * groups.count
        self._blocks: dict[bytes, list[int]] = {}
        """By digest: the block of each group, NO_BLOCK where it is unknown; one is known at least."""
        self._places: dict[int, tuple[bytes, int]] = {}
        """By block: digest and group."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._places

    def match(self, digests: list[bytes], limit: int) -> list[int]:
        """Return the table of the longest known prefix, at most `limit` spans.

        Behind a window it has NO_BLOCK.
        """
        num_whole, spans = self._num_whole, []
        for digest in digests[:limit]:
            blocks = self._blocks.get(digest, self._nothing)
            if NO_BLOCK in blocks[:num_whole]:
                break
            spans.append(blocks)
        if not self._window_spans:
            return [block_id for blocks in spans for block_id in blocks]
        del spans[self._num_usable(spans) :]
        table = []
        for number, blocks in enumerate(spans, -len(spans)):
            table += blocks[:num_whole]
            windowed = zip(blocks[num_whole:], self._window_spans, strict=True)
            table += [block_id if number >= -seen else NO_BLOCK for block_id, seen in windowed]
        return table

    def _num_usable(self, spans: list[list[int]]) -> int:
        """Return how many of the first spans are known as far as a token behind them sees. Looks at each span once."""
        windowed = list(enumerate(self._window_spans, self._num_whole))
        widest = max(self._window_spans)
        end = number = len(spans)
        while number > max(0, end - widest):
            number -= 1
            blocks = spans[number]
            if NO_BLOCK in blocks and any(
                blocks[group] == NO_BLOCK and number >= end - seen for group, seen in windowed
            ):
                end = number
        return end

    def blocks(self, digest: bytes) -> list[int]:
        """Return the block of a span in each group, NO_BLOCK where it is unknown."""
        return self._blocks.get(digest, self._nothing)

    def register(self, digest: bytes, blocks: Iterable[int]) -> None:
        """Add the blocks of a computed span. A block that is known already is kept for its digest."""
        known = self._blocks.get(digest)
        if known is None:
            known = self._blocks[digest] = self._nothing.copy()
        for group, block_id in enumerate(blocks):
            if known[group] == NO_BLOCK != block_id and block_id not in self._places:
                known[group] = block_id
                self._places[block_id] = digest, group

    def forget(self, block_id: int) -> bytes | None:
        """Remove a block, if it is known; return its digest."""
        place = self._places.pop(block_id, None)
        if place is None:
            return None
        digest, group = place
        blocks = self._blocks[digest]
        blocks[group] = NO_BLOCK
        if blocks == self._nothing:
            del self._blocks[digest]
        return digest

    def check_integrity(self) -> str:
        """Return what is wrong with the map, or ''."""
        found = {
            block_id: (digest, group)
            for digest, blocks in self._blocks.items()
            for group, block_id in enumerate(blocks)
            if block_id != NO_BLOCK
        }
        if found != self._places or self._nothing in self._blocks.values():
            return "the prefix cache does not map digests and blocks one to one"
        return ""
