"""How much of each kind of prompts the prefix cache still has, beside the order least recently freed first.

    python benchmarks/eviction.py [--cache-tokens 65536] [--requests 6000] [--seeds 3]

A simulation of the block tables alone, without a model. `Gaps`, on which the credits were chosen: agents whose
conversations grow from 10,000 to 25,000 tokens, chats of one request, chats of several, and long documents that are
asked about once. `gap` is the tokens of other requests between two turns of an agent, as a part of the cache.
`Afternoon`, on which nothing was chosen: requests at times of day, of two projects, in caches of several sizes.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.messages import AddSequence
from engine.scheduling import blocks, eviction
from engine.scheduling.blocks import BlockTables
from engine.sequence import Sequence

BLOCK_SIZE = 16
GAP_KINDS = ("agent", "chat", "once", "document")
AFTERNOON_KINDS = ("agent", "chat", "document", "office", "field")
"""Kinds, and tenants with all of theirs."""
POLICIES = {"least recent": (0, 0, 1.0), "as served": (blocks.LENGTH_CREDIT, blocks.HIT_CREDIT, eviction.TENANT_SHARE)}


Request = tuple[str, str, list[int]]
"""Kind, tenant and token ids."""


class Gaps:
    """Requests of all kinds; an agent's next turn comes after `gap_tokens` of other requests."""

    def __init__(self, seed: int, gap_tokens: int, has_documents: bool) -> None:
        self._random = random.Random(seed)
        self._gap_tokens = gap_tokens
        self._has_documents = has_documents
        self._agent: list[int] = []
        self._chats: list[list[int]] = []
        self._system = self._tokens(150)

    def requests(self) -> Iterator[Request]:
        gap = 0
        while True:
            if gap >= self._gap_tokens:
                gap = 0
                yield "agent", "agent", self._turn_of_agent()
                continue
            kind, prompt = self._other()
            gap += len(prompt)
            yield kind, "others", prompt

    def _turn_of_agent(self) -> list[int]:
        if len(self._agent) > 25_000 or not self._agent:
            self._agent = self._tokens(10_000)
        self._agent = self._agent + self._tokens(375)
        return self._agent

    def _other(self) -> tuple[str, list[int]]:
        draw = self._random.random()
        if self._has_documents and draw < 0.02:
            return "document", self._tokens(15_000)
        if draw < 0.5:
            return "once", self._system + self._tokens(self._random.randint(100, 1500))
        if len(self._chats) < 12 or draw < 0.6:
            self._chats.append(self._system.copy())
        chat = self._random.choice(self._chats)
        chat += self._tokens(self._random.randint(100, 500))
        if len(chat) > 2500:
            self._chats.remove(chat)
        return "chat", chat.copy()

    def _tokens(self, count: int) -> list[int]:
        return [self._random.getrandbits(30) for _ in range(count)]


class Afternoon:
    """Requests in the order of their times, of two projects, the second a third as busy.

    Conversations begin at random times and behind one of the project's system prompts, of which some are much more
    popular than others (Zipf). A chat goes on after its reader has read. An agent goes on after a tool, mostly within
    seconds, sometimes after minutes. Documents are asked about once.
    """

    TENANTS = (("office", 1.0), ("field", 1 / 3))
    BEGIN_S = {"chat": 15.0, "agent": 120.0, "document": 60.0}
    """Between two beginnings in a project with weight 1, on average."""
    PAUSE_S = {"chat": (45.0, 0.8), "agent": (8.0, 1.6)}
    """Between two turns: median, and deviation of the logarithm."""
    NUM_SYSTEM_PROMPTS = 20

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, str, str, list[int], int]] = []
        """A heap: time, number, kind, tenant, the tokens before the turn, the tokens at which it ends."""
        self._num_events = 0
        self._systems = {
            tenant: [self._tokens(self._length(600, 1.0, 4000)) for _ in range(self.NUM_SYSTEM_PROMPTS)]
            for tenant, _ in self.TENANTS
        }

    def requests(self) -> Iterator[Request]:
        for tenant, weight in self.TENANTS:
            for kind in self.BEGIN_S:
                self._begin(0.0, kind, tenant, weight)
        while True:
            now, _, kind, tenant, before, end = heappop(self._events)
            if not end:
                self._begin(now, kind, tenant, dict(self.TENANTS)[tenant])
                before = self._system(tenant)
                end = {"chat": self._length(2500, 0.8, 16_000), "agent": self._length(20_000, 0.7, 60_000)}.get(kind, 1)
            new = self._length(6000, 0.7, 25_000) if kind == "document" else self._length(250, 1.0, 4000)
            prompt = before + self._tokens(new)
            yield kind, tenant, prompt
            if len(prompt) < end:
                median_s, spread = self.PAUSE_S[kind]
                self._add(now + self._random.lognormvariate(0, spread) * median_s, kind, tenant, prompt, end)

    def _begin(self, now: float, kind: str, tenant: str, weight: float) -> None:
        """Add the next conversation of a kind; it has no end yet."""
        self._add(now + self._random.expovariate(weight / self.BEGIN_S[kind]), kind, tenant, [], 0)

    def _add(self, time_s: float, kind: str, tenant: str, before: list[int], end: int) -> None:
        self._num_events += 1
        heappush(self._events, (time_s, self._num_events, kind, tenant, before, end))

    def _system(self, tenant: str) -> list[int]:
        weights = [1 / rank for rank in range(1, self.NUM_SYSTEM_PROMPTS + 1)]
        return self._random.choices(self._systems[tenant], weights)[0]

    def _length(self, median: int, spread: float, most: int) -> int:
        return min(most, 1 + int(self._random.lognormvariate(0, spread) * median))

    def _tokens(self, count: int) -> list[int]:
        return [self._random.getrandbits(30) for _ in range(count)]


def simulate(requests: Iterable[Request], num_blocks: int) -> tuple[Counter[str], Counter[str]]:
    """Return the tokens of prompts by kind and by tenant, and those that the cache had; leave out what has no room."""
    tables = BlockTables(num_blocks, BLOCK_SIZE, shares_prefixes=True)
    given, found = Counter[str](), Counter[str]()
    for number, (kind, tenant, prompt) in enumerate(requests):
        if len(prompt) > tables.capacity_tokens:
            continue
        sequence = _sequence(number, prompt, tenant)
        tables.open(sequence)
        matched = tables.match(sequence)
        tables.take(sequence, matched)
        sequence.num_cached = tables.num_matched(matched)
        sequence.num_computed = len(prompt)
        tables.register(sequence, 0)
        tables.close(sequence)
        for name in {kind, tenant, "all"}:
            given[name] += len(prompt)
            found[name] += sequence.num_cached
    return given, found


def _sequence(seq_id: int, prompt: list[int], tenant: str) -> Sequence:
    return Sequence(
        AddSequence(
            seq_id=seq_id,
            prompt_ids=prompt,
            output_ids=[],
            sampling=SamplingParams(),
            stop=StopRules(),
            logprobs=LogprobOptions(),
            stop_ids=[],
            max_tokens=1,
            cache_root=tenant.encode(),
            tenant=tenant,
        )
    )


def compare(title: str, kinds: tuple[str, ...], requests: Iterable[Iterable[Request]], num_blocks: int) -> None:
    """Print for each policy how much of the prompts the cache had, in all the traces of `requests`, by kind."""
    traces = [list(trace) for trace in requests]
    for name, (new, hit, share) in POLICIES.items():
        given, found = Counter[str](), Counter[str]()
        for trace in traces:
            with (
                patch.object(blocks, "LENGTH_CREDIT", new),
                patch.object(blocks, "HIT_CREDIT", hit),
                patch.object(eviction, "TENANT_SHARE", share),
            ):
                counts = simulate(trace, num_blocks)
            given, found = given + counts[0], found + counts[1]
        rates = [found[kind] / max(1, given[kind]) for kind in (*kinds, "all")]
        print(f"{title:15} {name:13} " + "".join(f"{rate:10.1%}" for rate in rates), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache-tokens", type=int, default=65_536)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("gap             order         " + "".join(f"{kind:>10}" for kind in (*GAP_KINDS, "all")))
    for has_documents in (False, True):
        for gap in (0.5, 1.0, 2.0):
            traffic = (Gaps(seed, int(gap * options.cache_tokens), has_documents) for seed in range(options.seeds))
            compare(
                f"{gap}{', documents' if has_documents else ''}",
                GAP_KINDS,
                (islice(one.requests(), options.requests) for one in traffic),
                options.cache_tokens // BLOCK_SIZE,
            )
    print("afternoon       order         " + "".join(f"{kind:>10}" for kind in (*AFTERNOON_KINDS, "all")))
    for factor in (0.5, 1, 2, 4):
        num_tokens = int(factor * options.cache_tokens)
        traces = (islice(Afternoon(seed).requests(), options.requests) for seed in range(options.seeds))
        compare(f"{num_tokens} tokens", AFTERNOON_KINDS, traces, num_tokens // BLOCK_SIZE)


if __name__ == "__main__":
    main()
