"""Repetition guard: no n-gram of tokens occurs twice in an answer, or in its last part."""

from __future__ import annotations

from typing import ClassVar

import torch

from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.processor import ProcessorSetup

MAX_SIZE = 1024


class NoRepeatNgram:
    """A processor that forbids each token that would repeat an n-gram.

    Only the last `window_size` output tokens count (0: all).

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
