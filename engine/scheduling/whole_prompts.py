"""The queue of an encoder: each prompt is computed whole, in one step, and ends with it.

A step takes prompts in their turn (waiting.py) while their tokens fit its budget, and at least one. Beside a tenant
with many prompts another one's come in turn: the tenant that has got the fewest tokens is next. Pure Python.
"""

from __future__ import annotations

from collections import Counter

from engine.api.errors import ErrorCode, RequestError
from engine.messages import CoreStats
from engine.scheduling.waiting import WaitingQueue, check_place
from engine.sequence import Sequence, SequenceStatus


class WholePrompts:
    """The owner of the waiting prompts of a core without a cache."""

    def __init__(self, max_num_batched_tokens: int, max_num_seqs: int, max_waiting: int) -> None:
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_num_seqs = max_num_seqs
        self._max_waiting = max_waiting
        self._waiting = WaitingQueue()
        self._sequences: dict[int, Sequence] = {}
        self._num_known: Counter[str] = Counter()
        """Waiting sequences, by tenant."""
        self._num_given: dict[str, int] = {}
        """Tokens that the tenants with waiting prompts have got, from the least of the others on when one comes."""
        self._num_arrived = 0
        self._num_steps = 0
        self._num_prompt_tokens = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises RequestError for an empty prompt, EngineUnavailable as `check_place`."""
        assert sequence.seq_id not in self._sequences
        if not sequence.prompt_ids:
            raise RequestError(ErrorCode.INVALID_VALUE, "the prompt must not be empty", "prompt")
        tenant = sequence.tenant
        check_place(self._num_known, tenant, 1, self._max_waiting, self._max_num_seqs)
        self._num_given.setdefault(tenant, min(self._num_given.values(), default=0))
        self._num_known[tenant] += 1
        self._num_arrived += 1
        sequence.arrival = self._num_arrived
        self._sequences[sequence.seq_id] = sequence
        self._waiting.arrive(sequence)

    def abort(self, seq_id: int) -> Sequence | None:
        """Drop a waiting sequence and return it; None if the id is unknown."""
        sequence = self._sequences.get(seq_id)
        if sequence is not None:
            self._take(sequence)
        return sequence

    def plan(self) -> list[Sequence]:
        """Take the sequences of one step out of the queue; empty if none waits."""
        chosen: list[Sequence] = []
        num_tokens = 0
        for sequence in self._waiting.in_turn(self._max_num_seqs, lambda tenant, _: self._num_given[tenant]):
            length = len(sequence.prompt_ids)
            if chosen and num_tokens + length > self._max_num_batched_tokens:
                break
            chosen.append(sequence)
            num_tokens += length
            self._num_given[sequence.tenant] += length
        for sequence in chosen:
            self._take(sequence)
        if chosen:
            self._num_steps += 1
            self._num_prompt_tokens += num_tokens
        return chosen

    def stats(self) -> CoreStats:
        return CoreStats(
            num_running=0,
            num_waiting=len(self._waiting),
            num_free_blocks=0,
            num_blocks=0,
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=0,
            num_preemptions=0,
        )

    def check_integrity(self) -> str:
        """Verify the counts of sequences; return the first error, or ''."""
        if len(self._waiting) != len(self._sequences) or sum(self._num_known.values()) != len(self._sequences):
            return "the counts of waiting sequences differ"
        return "" if self._num_given.keys() == self._num_known.keys() else "a tenant without sequences has a share"

    def _take(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)
        del self._sequences[sequence.seq_id]
        sequence.status = SequenceStatus.FINISHED
        self._num_known[sequence.tenant] -= 1
        if not self._num_known[sequence.tenant]:
            del self._num_known[sequence.tenant], self._num_given[sequence.tenant]
