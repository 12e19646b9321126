"""How much of each kind of prompts the prefix cache still has, beside the order least recently freed first.

    python benchmarks/eviction.py [--cache-tokens 65536] [--requests 6000] [--seeds 3]

A simulation of the block tables alone, without a model: agents whose conversations grow from 10,000 to 25,000 tokens,
chats of one request, chats of several, and long documents that are asked about once. `gap` is the tokens of other
requests between two turns of an agent, as a part of the cache.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.messages import AddSequence
from engine.scheduling import blocks, eviction
from engine.scheduling.blocks import BlockTables
from engine.sequence import Sequence

BLOCK_SIZE = 16
KINDS = ("agent", "chat", "once", "document")
POLICIES = {"least recent": (0, 0, 1.0), "as served": (blocks.LENGTH_CREDIT, blocks.HIT_CREDIT, eviction.TENANT_SHARE)}


class Traffic:
    """Requests of all kinds, as (kind, token ids); an agent's next turn comes after `gap_tokens` of other requests."""

    def __init__(self, seed: int, gap_tokens: int, has_documents: bool) -> None:
        self._random = random.Random(seed)
        self._gap_tokens = gap_tokens
        self._has_documents = has_documents
        self._agent: list[int] = []
        self._chats: list[list[int]] = []
        self._system = self._tokens(150)

    def requests(self, count: int) -> Iterator[tuple[str, list[int]]]:
        gap = 0
        for _ in range(count):
            if gap >= self._gap_tokens:
                gap = 0
                yield "agent", self._turn_of_agent()
                continue
            kind, prompt = self._other()
            gap += len(prompt)
            yield kind, prompt

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


def simulate(traffic: Traffic, num_requests: int, num_blocks: int) -> tuple[Counter[str], Counter[str]]:
    """Return the tokens of prompts by kind, and those that the cache had."""
    tables = BlockTables(num_blocks, BLOCK_SIZE, shares_prefixes=True)
    given, found = Counter[str](), Counter[str]()
    for number, (kind, prompt) in enumerate(traffic.requests(num_requests)):
        sequence = _sequence(number, prompt, "agent" if kind == "agent" else "others")
        tables.open(sequence)
        matched = tables.match(sequence)
        tables.take(sequence, matched)
        sequence.num_cached = tables.num_matched(matched)
        sequence.num_computed = len(prompt)
        tables.register(sequence, 0)
        tables.close(sequence)
        given[kind] += len(prompt)
        found[kind] += sequence.num_cached
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache-tokens", type=int, default=65_536)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    num_blocks = options.cache_tokens // BLOCK_SIZE
    print("documents gap   order         " + "".join(f"{kind:>10}" for kind in (*KINDS, "all")))
    for has_documents in (False, True):
        for gap in (0.5, 1.0, 2.0):
            for name, (new, hit, share) in POLICIES.items():
                given, found = Counter[str](), Counter[str]()
                for seed in range(options.seeds):
                    traffic = Traffic(seed, int(gap * options.cache_tokens), has_documents)
                    with (
                        patch.object(blocks, "LENGTH_CREDIT", new),
                        patch.object(blocks, "HIT_CREDIT", hit),
                        patch.object(eviction, "TENANT_SHARE", share),
                    ):
                        counts = simulate(traffic, options.requests, num_blocks)
                    given, found = given + counts[0], found + counts[1]
                rates = [found[kind] / max(1, given[kind]) for kind in KINDS] + [found.total() / given.total()]
                print(
                    f"{has_documents!s:9} {gap:<5} {name:13} " + "".join(f"{rate:10.1%}" for rate in rates), flush=True
                )


if __name__ == "__main__":
    main()
