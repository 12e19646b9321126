"""The grammars of the core: built in a background thread, followed per sequence, with masks filled while a device
computes.

Only sequences with a grammar cost anything. The step loop calls this; a failure concerns one sequence alone and raises
nothing.
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
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.exchange import CONJUNCTION, LLGUIDANCE, XGRAMMAR, unpack_grammars
from engine.structured.schema.conjunction import ConjunctionTemplate

WAIT_S = 0.01


class CoreGrammars:
    """The grammars of one core. `load_vocabulary` is called once, with the first grammar.

    With `fills_ahead` masks are filled while the model computes, which pays on a device. On a CPU a thread that fills
    masks takes a core from the model, so they are filled between computing and sampling.
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
        """By seq_id, for the current step: the length of the output, and the mask (None admits everything)."""

    def define(self, message: DefineGrammar) -> None:
        """Build a grammar in the background."""
        self._templates[message.key] = self._builder.submit(self._build, message)

    def forget(self, keys: list[str]) -> None:
        """Drop grammars that no new sequence will name. Running sequences keep theirs."""
        for key in keys:
            self._templates.pop(key, None)

    def is_ready(self, key: str) -> bool:
        """Return True if a sequence with this grammar can be added at once: it is built, or never will be."""
        return key not in self._templates or self._templates[key].done()

    def wait_for(self, keys: list[str]) -> None:
        """Wait a moment for one of these grammars to be built."""
        wait([self._templates[key] for key in keys if key in self._templates], WAIT_S)

    def add(self, sequence: Sequence) -> None:
        """Follow a sequence from its present state. Raises if its grammar is unknown or could not be built."""
        if sequence.request.grammar:
            self._followers[sequence.seq_id] = Follower(
                sequence, self._templates[sequence.request.grammar].result().start()
            )

    def remove(self, seq_id: int) -> None:
        """Forget a sequence that has ended. Ignores unknown ids."""
        self._followers.pop(seq_id, None)

    def start_filling(self, sequences: list[Sequence]) -> None:
        """Fill the masks of a step in the background if that pays, for sequences that need one."""
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
        """Return the masks of these rows; None if no grammar restricts them."""
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
        """Return True if the answer of a sequence can only end now."""
        follower = self._followers.get(sequence.seq_id)
        if follower is None:
            return False
        self._finish_filling()
        return follower.is_complete()

    def close(self) -> None:
        """Stop the threads."""
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


def build_template(backend: str, payload: bytes, vocabulary: Vocabulary) -> GrammarTemplate:
    """Build the grammar that the child has compiled. Raises MatcherFailed, or KeyError for an unknown backend.

    A library is imported with the first grammar that needs it.
    """
    if backend == LLGUIDANCE:
        from engine.structured.backends.llguidance_matcher import LlguidanceTemplate

        return LlguidanceTemplate(payload, vocabulary)
    if backend == XGRAMMAR:
        from engine.structured.backends.xgrammar_matcher import XgrammarTemplate

        return XgrammarTemplate(payload, vocabulary)
    if backend == CONJUNCTION:
        first, second = unpack_grammars(payload)
        return ConjunctionTemplate(
            build_template(LLGUIDANCE, first, vocabulary), build_template(LLGUIDANCE, second, vocabulary)
        )
    raise KeyError(backend)
