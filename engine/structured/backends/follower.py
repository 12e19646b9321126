"""Follow one sequence under a grammar: which of its tokens the grammar has taken, and which may come next.

It follows `output_ids` forwards and back (drafts are tried and withdrawn), waits for the end of reasoning, and admits
end tokens where the grammar may end. `CoreGrammars` uses it, from one thread at a time.
"""

from __future__ import annotations

import logging
import time

from engine.sampling.thinking import ThinkingTrack
from engine.sequence import Sequence
from engine.structured.backends.matcher import Matcher, MatcherFailed, Words, bit_of

MAX_MASK_S = 0.25
"""The most processor time of one mask, for which the whole step may have to wait.

A grammar beyond it would take ever longer.
"""

logger = logging.getLogger(__name__)


class Follower:
    """A sequence under a grammar.

    A grammar that fails admits nothing any more, which ends its sequence and no other.
    """

    def __init__(self, sequence: Sequence, matcher: Matcher) -> None:
        self._sequence = sequence
        self._matcher = matcher
        self._track = ThinkingTrack(sequence.request.thinking) if sequence.request.thinking else None
        self._taken: list[int] = []
        self._is_broken = False
        self._stop_bits = [(token_id // 32, bit_of(token_id)) for token_id in sequence.stop_ids]

    @property
    def num_output(self) -> int:
        """The length of the output that the next mask is for."""
        return len(self._sequence.output_ids)

    def fill(self, words: Words) -> bool:
        """Write the mask of the next token over the row.

        Return False, with nothing written, while the sequence is free to reason.
        """
        output_ids = self._sequence.output_ids
        if self._track is None:
            self._fill_answer(words, output_ids)
            return True
        self._track.update(output_ids)
        if self._track.is_open:
            return False
        self._fill_answer(words, output_ids[self._track.answer_start :])
        for opening_id in self._track.opening_ids:
            words[opening_id // 32] |= bit_of(opening_id)
        return True

    def is_complete(self) -> bool:
        """Return True if the answer can only end now."""
        output_ids = self._sequence.output_ids
        if self._track is not None:
            self._track.update(output_ids)
            if not self._track.is_over:
                return False
            output_ids = output_ids[self._track.answer_start :]
        try:
            return not self._is_broken and self._follow(output_ids) and self._matcher.is_complete()
        except Exception:  # the next mask will say so
            return False

    def _fill_answer(self, words: Words, answer_ids: list[int]) -> None:
        words[:] = 0
        started = time.thread_time()
        try:
            if self._is_broken or not self._follow(answer_ids):
                return
            self._matcher.fill(words)
            can_end = self._matcher.can_end()
            if time.thread_time() - started > MAX_MASK_S:
                raise MatcherFailed("a mask takes too long")
        except Exception as error:  # whatever a library raises is the end of this sequence only
            logger.warning("the grammar of sequence %d fails: %s", self._sequence.seq_id, error)
            words[:] = 0
            self._is_broken = True
            return
        for word, bit in self._stop_bits:
            if word < len(words):
                words[word] = words[word] | bit if can_end else words[word] & ~bit

    def _follow(self, answer_ids: list[int]) -> bool:
        """Bring the grammar to the end of these tokens. Return False if it does not admit them.

        Raises MatcherFailed.
        """
        taken = self._taken
        keep = min(len(taken), len(answer_ids))
        while keep and taken[keep - 1] != answer_ids[keep - 1]:
            keep -= 1
        if keep < len(taken):
            self._matcher.rollback(len(taken) - keep)
            del taken[keep:]
        for token_id in answer_ids[keep:]:
            if not self._matcher.accept(token_id):
                return False
            taken.append(token_id)
        return True
