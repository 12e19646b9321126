"""Cache groups: which layers of a model share a block table, and how many blocks a context holds. No tensors.

All blocks of the cache have the same bytes and come from one pool, so memory goes to whatever contexts need. A block of
a group holds `block_size` positions, a span, of the group's layers. A sequence has a block of every group for each
span; groups with a window release those that no later token sees. Layers with one window and equally large keys make a
group, or several groups where other layers are fewer, so that every group fills its blocks. Method: hybrid cache groups
of vLLM (https://docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager/).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

NO_BLOCK = -1
"""Stands in a block table for a block that is behind the window, or not taken yet."""
MOST_OVERHEAD = 1.15
"""Fewer groups are worth so much memory: a step writes a table for each, the scheduler keeps their blocks apart."""
LONGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """Where the keys of a layer lie: in `part` of the blocks of a cache tensor, under the block table of `group`."""

    group: int = 0
    tensor: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True)
class CacheGroups:
    """The groups of a model. Those that see everything come first.

    `chunk_tokens`: a prompt has blocks of groups with windows for at most so many tokens ahead.
    """

    block_size: int
    windows: tuple[int, ...] = (0,)
    """By group: positions that a token sees, its own included; 0: all."""
    places: tuple[LayerPlace, ...] = (LayerPlace(),)
    """By layer."""
    part_size: int = 0
    """Numbers that the keys of a block have in one cache tensor, and likewise its values."""
    chunk_tokens: int = 0

    @property
    def count(self) -> int:
        return len(self.windows)

    @property
    def num_whole(self) -> int:
        """The number of groups without a window."""
        return self.windows.count(0)

    @property
    def num_tensors(self) -> int:
        return 1 + max(place.tensor for place in self.places)

    def num_spans(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def window_spans(self, window: int) -> int:
        """Return how many spans before a new one a window reaches into."""
        return self.num_spans(window - 1)

    def held_spans(self, num_tokens: int) -> list[int]:
        """Return of how many spans a sequence of so many tokens holds the blocks at most, by group."""
        spans, chunk = self.num_spans(num_tokens), self.num_spans(self.chunk_tokens) + 1
        return [min(spans, self.window_spans(window) + chunk) if window else spans for window in self.windows]

    def lone_table(self, num_tokens: int) -> list[int]:
        """Return the block table of a sequence of so many tokens in the first blocks, used again behind windows."""
        held = self.held_spans(num_tokens)
        firsts = list(accumulate(held, initial=0))
        return [
            first + span % count
            for span in range(self.num_spans(num_tokens))
            for first, count in zip(firsts, held, strict=False)
        ]

    def blocks_for(self, num_tokens: int) -> int:
        """Return the most blocks that a sequence of so many tokens holds at a time."""
        return sum(self.held_spans(num_tokens))

    def capacity_tokens(self, num_blocks: int) -> int:
        """Return the longest sequence that finds room in so many blocks; LONGEST if any does."""
        spans = range(LONGEST // self.block_size + 1)
        return self.block_size * (
            bisect_right(spans, num_blocks, key=lambda number: self.blocks_for(number * self.block_size)) - 1
        )


def group_layers(
    windows: Sequence[int],
    sizes: Sequence[int],
    *,
    block_size: int,
    chunk_tokens: int = 0,
    sources: Sequence[int | None] = (),
) -> CacheGroups:
    """Group layers by their windows and by the size of a position's keys.

    `sources`: of each layer, the earlier one whose keys it reads; None: its own. Empty: all have their own.

    A block has one part in each of several cache tensors, and a part the keys of one layer, or of several smaller ones.
    The number of tensors is the one that costs long contexts least, and of these the largest, which makes few groups.
    """
    kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
    shared = {layer: source for layer, source in enumerate(sources) if source is not None}
    for layer, kind in enumerate(zip(windows, sizes, strict=True)):
        if layer not in shared:
            kinds[kind].append(layer)
    part_size = max(sizes)

    def num_groups(kind: tuple[int, int], num_tensors: int) -> int:
        return -(-len(kinds[kind]) // (num_tensors * (part_size // kind[1])))

    def cost(num_tensors: int, kinds: Iterable[tuple[int, int]]) -> int:
        return num_tensors * sum(num_groups(kind, num_tensors) for kind in kinds)

    choices = range(1, max(num_groups(kind, 1) for kind in kinds) + 1)
    most = MOST_OVERHEAD * min(cost(number, kinds) for number in choices)
    whole = [kind for kind in kinds if not kind[0]]
    num_tensors = min(
        (number for number in choices if cost(number, kinds) <= most),
        key=lambda number: (cost(number, whole), -number),
    )
    found: list[int] = []
    places = [LayerPlace()] * len(windows)
    for kind in sorted(kinds, key=lambda kind: (kind[0] > 0, kinds[kind])):
        for number, layer in enumerate(kinds[kind]):
            row, tensor = divmod(number, num_tensors)
            group, part = divmod(row, part_size // kind[1])
            places[layer] = LayerPlace(len(found) + group, tensor, part)
        found += [kind[0]] * num_groups(kind, num_tensors)
    for layer, source in shared.items():
        places[layer] = places[source]
    return CacheGroups(block_size, tuple(found), tuple(places), part_size * block_size, chunk_tokens)
