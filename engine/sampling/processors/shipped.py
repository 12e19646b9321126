"""The logits processors that are shipped."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.processor import ProcessorSetup

MAX_SIZE = 1024


class NoRepeatNgram:
    """A processor that forbids each token that would repeat an n-gram of the last `window_size` output tokens (0: of
    all).

    `whitelist_token_ids` are never forbidden.
    """

    spec: ClassVar[ProcessorSpec] = ProcessorSpec(
        "no_repeat_ngram",
        [
            ProcessorParameter("ngram_size", "int", 1, MAX_SIZE, is_required=True),
            ProcessorParameter("window_size", "int", 0),
            ProcessorParameter("whitelist_token_ids", "token_ids"),
        ],
    )

    def __init__(self, setup: ProcessorSetup) -> None:
        self._num_before: int = setup.arguments["ngram_size"] - 1
        self._window_size: int = setup.arguments.get("window_size", 0)
        self._always: set[int] = set(setup.arguments.get("whitelist_token_ids", ()))
        self._seen: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}
        """The positions after each run of `ngram_size - 1` tokens, in order."""

    def apply(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
        self._follow(output_ids)
        end = len(output_ids)
        first = max(0, end - self._window_size) if self._window_size else 0
        places = self._places.get(tuple(output_ids[end - self._num_before :] if self._num_before else ()), [])
        repeats = {output_ids[place] for place in places if place - self._num_before >= first} - self._always
        if repeats:
            logits[torch.tensor(sorted(repeats), device=logits.device)] = float("-inf")

    def _follow(self, output_ids: list[int]) -> None:
        """Index new tokens and drop those that were removed with rejected drafts."""
        seen = self._seen
        while len(seen) > len(output_ids) or (seen and seen[-1] != output_ids[len(seen) - 1]):
            place = len(seen) - 1
            if place >= self._num_before:
                self._places[self._key(place)].pop()
            seen.pop()
        for place in range(len(seen), len(output_ids)):
            seen.append(output_ids[place])
            if place >= self._num_before:
                self._places.setdefault(self._key(place), []).append(place)

    def _key(self, place: int) -> tuple[int, ...]:
        return tuple(self._seen[place - self._num_before : place])


Node = dict[int, "Node"]


class TokenTrie:
    """A processor that allows only continuations of the given sequences, and the stop ids after a complete one."""

    spec: ClassVar[ProcessorSpec] = ProcessorSpec(
        "token_trie", [ProcessorParameter("sequences", "token_id_lists", is_required=True)]
    )

    def __init__(self, setup: ProcessorSetup) -> None:
        sequences: list[list[int]] = setup.arguments["sequences"]
        self._root: Node = {}
        self._complete: set[int] = set()
        for sequence in sequences:
            node = self._root
            for token_id in sequence:
                node = node.setdefault(token_id, {})
            self._complete.add(id(node))
        self._stop_ids = [token_id for token_id in setup.stop_ids if token_id < setup.vocab_size]

    def apply(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
        allowed = self._next_ids(output_ids)
        index = torch.tensor(allowed, dtype=torch.int64, device=logits.device)
        kept = logits[index]
        logits.fill_(float("-inf"))
        logits[index] = kept

    def _next_ids(self, output_ids: list[int]) -> list[int]:
        """Return the allowed tokens: stop ids alone if a forced token has led out of the sequences."""
        node: Any = self._root
        for token_id in output_ids:
            node = node.get(token_id)
            if node is None:
                return self._stop_ids
        return [*node, *self._stop_ids] if id(node) in self._complete else list(node)
