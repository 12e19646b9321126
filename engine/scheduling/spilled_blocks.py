"""The spilled blocks: which blocks that the prefix cache has given away are still in the spill file, and where.

A block that is given away gets a place in the file at once, and is copied there when a step is about to write over it
(`save`); many are never written over, as their sequence is aborted. A sequence that finds its next spans here has them
copied into blocks of its own, a bounded number in each step, and goes on behind them. What has been copied back keeps
its place, so it need not be copied again when it is given away again. Reasons: docs/decisions/0020-spilled-blocks.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from engine.scheduling.eviction import EvictionOrder

RESTORED_BYTES = 32 << 20
"""The most that is copied back before a step, one block at least. Running streams wait for it: some milliseconds if the
system still has the pages in memory, up to 160 ms from the disk that was measured.
"""


class BlockFile(Protocol):
    """Room for blocks outside the KV cache, at places `0..num_places`. Copies are complete when a method returns."""

    num_places: int
    block_bytes: int

    def write(self, place: int, block_id: int) -> None:
        """Copy a block of the cache into the file."""

    def read(self, place: int, block_id: int) -> None:
        """Copy a block of the file into the cache."""


class SpilledBlocks:
    """The places of blocks by digest. The file loses what was given away or restored least recently first."""

    def __init__(self, file: BlockFile) -> None:
        self.most_restored = max(1, RESTORED_BYTES // file.block_bytes)
        """Blocks that may be copied back before a step."""
        self.num_spilled = 0
        self.num_restored = 0
        self.num_lost = 0
        """Blocks that the file had to give up for others."""
        self._file = file
        self._places: dict[bytes, int] = {}
        self._digests = [b""] * file.num_places
        """By place."""
        self._empty = list(range(file.num_places - 1, -1, -1))
        """Places without content, the next one last."""
        self._order = EvictionOrder(file.num_places)
        """Places with content."""
        self._unsaved: dict[int, int] = {}
        """By block that still holds the content, as nothing has written over it: its place."""
        self._sources: dict[int, int] = {}
        """The same, by place."""

    @property
    def num_places(self) -> int:
        return len(self._digests)

    @property
    def num_held(self) -> int:
        return len(self._places)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def add(self, digest: bytes, block_id: int, tenant: str) -> None:
        """Give a place to a block that the prefix cache gives away. Add the end of a chain before its beginning."""
        if digest in self._places:
            self.renew([digest], tenant)
            return
        assert block_id not in self._unsaved, "what has content was written, and saved before"
        if self._empty:
            place = self._empty.pop()
        else:
            place = self._order.pop()
            self._drop(place)
            self.num_lost += 1
        self._places[digest], self._digests[place] = place, digest
        self._unsaved[block_id], self._sources[place] = place, block_id
        self._arrange(place, tenant)
        self.num_spilled += 1

    def renew(self, digests: Iterable[bytes], tenant: str) -> None:
        """Let blocks stay as long as if they were added now; the end of a chain first."""
        for digest in digests:
            place = self._places[digest]
            self._order.remove(place)
            self._arrange(place, tenant)

    def save(self, block_ids: Iterable[int]) -> None:
        """Copy what blocks still hold into the file. Call before anything writes over them."""
        for block_id in block_ids:
            place = self._unsaved.pop(block_id, None)
            if place is not None:
                del self._sources[place]
                self._file.write(place, block_id)

    def restore(self, digest: bytes, block_id: int) -> None:
        """Copy a spilled block into a block of the cache."""
        place = self._places[digest]
        self.save([block_id])
        if place in self._sources:
            self.save([self._sources[place]])
        self._file.read(place, block_id)
        self.num_restored += 1

    def forget(self, digest: bytes) -> None:
        """Remove a block for good, if it is here."""
        place = self._places.get(digest)
        if place is not None:
            self._order.remove(place)
            self._order.forget(place)
            self._drop(place)
            self._empty.append(place)

    def _arrange(self, place: int, tenant: str) -> None:
        self._order.delay(place, self._order.due(0))
        self._order.add(place, tenant)

    def _drop(self, place: int) -> None:
        del self._places[self._digests[place]]
        block_id = self._sources.pop(place, None)
        if block_id is not None:
            del self._unsaved[block_id]

    def check_integrity(self) -> str:
        """Return what is wrong with the places, or ''."""
        kept = list(self._order)
        if sorted(kept + self._empty) != list(range(len(self._digests))):
            return "a place of the spill file is neither empty nor taken, or both"
        if self._places != {self._digests[place]: place for place in kept}:
            return "the spilled blocks do not map digests and places one to one"
        if {place: block_id for block_id, place in self._unsaved.items()} != self._sources:
            return "the blocks to be saved do not agree with their places"
        return self._order.check_integrity()
