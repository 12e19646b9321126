"""Answers from a list: the output must be one of the given token sequences, and then end."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.processor import ProcessorSetup

Node = dict[int, "Node"]


class TokenTrie:
    """A processor that allows only continuations of the given sequences.

    The stop ids are allowed after a complete sequence.
    """

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
        """Return the allowed tokens.

        Only stop ids if the output has left the sequences, which a forced token can cause.
        """
        node: Any = self._root
        for token_id in output_ids:
            node = node.get(token_id)
            if node is None:
                return self._stop_ids
        return [*node, *self._stop_ids] if id(node) in self._complete else list(node)
