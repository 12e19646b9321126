"""The grammars of the core: built in a thread of their own when they come, followed per sequence, masks filled while a device computes.

Only sequences that name a grammar cost anything. Called by the step loop; nothing here raises for one sequence's sake.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import torch

from engine.messages import DefineGrammar
from engine.sampling.masks import GrammarBitmask
from engine.sequence import Sequence
from engine.structured.backends.follower import Follower
from engine.structured.backends.matcher import GrammarTemplate
from engine.structured.backends.select import build_template
from engine.structured.backends.vocabulary import Vocabulary

WAIT_S = 0.01


class CoreGrammars:
    """`load_vocabulary` is called once, when the first grammar comes.

    `fills_ahead`: masks are filled while the model computes, which pays where it computes on a device. Where it computes on this
    processor, a thread that fills masks takes a core from it and makes it wait; masks are filled between computing and drawing then.
    """

    def __init__(self, load_vocabulary: Callable[[], Vocabulary], *, fills_ahead: bool = True) -> None:
        self._load_vocabulary = load_vocabulary
        self._vocabulary: Vocabulary | None = None
        self._fills_ahead = fills_ahead
        self._num_words = 0
        self._templates: dict[str, Future[GrammarTemplate]] = {}
        self._followers: dict[int, Follower] = {}
        self._builder = ThreadPoolExecutor(1, "grammar-builder")
        self._filler = ThreadPoolExecutor(1, "grammar-masks")
        self._filling: Future[None] | None = None
        self._filled: dict[int, tuple[int, np.ndarray | None]] = {}
        """Of the step that is being computed: length of the output and mask (None: anything goes) by seq_id."""

    def define(self, message: DefineGrammar) -> None:
        """Build a grammar in the background."""
        self._templates[message.key] = self._builder.submit(self._build, message)

    def forget(self, keys: list[str]) -> None:
        """Drop grammars that no new sequence will name; running ones keep theirs."""
        for key in keys:
            self._templates.pop(key, None)

    def is_ready(self, key: str) -> bool:
        """Whether a sequence that names this grammar can be added at once: it has been built, or never will be."""
        return key not in self._templates or self._templates[key].done()

    def wait_for(self, keys: list[str]) -> None:
        """Give one of these grammars a moment to be built."""
        wait([self._templates[key] for key in keys if key in self._templates], WAIT_S)

    def add(self, sequence: Sequence) -> None:
        """Follow a sequence from where it stands. Raises if its grammar is unknown or could not be built."""
        if sequence.request.grammar:
            self._followers[sequence.seq_id] = Follower(
                sequence, self._templates[sequence.request.grammar].result().start()
            )

    def remove(self, seq_id: int) -> None:
        """Forget a sequence that has ended; unknown ids are ignored."""
        self._followers.pop(seq_id, None)

    def start_filling(self, sequences: list[Sequence]) -> None:
        """Fill the first masks of a step in the background, if that pays, for those of its sequences that need one."""
        if not self._followers or not self._fills_ahead:
            return
        followers = {
            sequence.seq_id: self._followers[sequence.seq_id]
            for sequence in sequences
            if sequence.seq_id in self._followers
        }
        self._filled.clear()
        self._filling = self._filler.submit(self._fill_all, followers) if followers else None

    def bitmask(self, sequences: list[Sequence]) -> GrammarBitmask | None:
        """What may come next in these rows; None if no grammar says anything."""
        if not self._followers:
            return None
        self._finish_filling()
        found = [
            (row, self._mask(sequence.seq_id))
            for row, sequence in enumerate(sequences)
            if sequence.seq_id in self._followers
        ]
        masks = {row: mask for row, mask in found if mask is not None}
        return GrammarBitmask(list(masks), torch.from_numpy(np.stack(list(masks.values())))) if masks else None

    def is_complete(self, sequence: Sequence) -> bool:
        """Whether the answer of a sequence can only end now."""
        follower = self._followers.get(sequence.seq_id)
        if follower is None:
            return False
        self._finish_filling()
        return follower.is_complete()

    def close(self) -> None:
        """Let the threads end."""
        self._builder.shutdown(wait=False, cancel_futures=True)
        self._filler.shutdown(wait=False, cancel_futures=True)

    def _build(self, message: DefineGrammar) -> GrammarTemplate:
        if self._vocabulary is None:
            self._vocabulary = self._load_vocabulary()
            self._num_words = -(-len(self._vocabulary.tokens) // 32)
        return build_template(message.backend, message.payload, self._vocabulary)

    def _fill_all(self, followers: dict[int, Follower]) -> None:
        for seq_id, follower in followers.items():
            self._filled[seq_id] = self._fill(follower)

    def _fill(self, follower: Follower) -> tuple[int, np.ndarray | None]:
        words = np.zeros(self._num_words, dtype=np.int32)
        return follower.num_output, words if follower.fill(words) else None

    def _mask(self, seq_id: int) -> np.ndarray | None:
        follower = self._followers[seq_id]
        filled = self._filled.get(seq_id)
        if filled is None or filled[0] != follower.num_output:
            filled = self._filled[seq_id] = self._fill(follower)
        return filled[1]

    def _finish_filling(self) -> None:
        if self._filling is not None:
            self._filling.result()
            self._filling = None
