"""One choice of one run inside the core: its tokens, how far they are computed, and the cache blocks it holds.

Pure Python. Written by the scheduler (blocks, status, computed count) and by the step loop (sampled tokens), read by all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from engine.api.request import EmbedOptions
from engine.api.sampling import LogprobOptions, SamplingParams, StopRules
from engine.messages import Thinking


class SequenceStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Known tokens (prompt, then output) that computed tokens chase.

    `num_computed` tokens have their keys and values in `block_ids`; a step computes the next ones. `sampling.seed` is never
    None here. `cache_root` seeds the prefix-cache hash chain of this tenant and salt. `stop_ids` end the sequence when sampled
    (EOS included unless ignored); `num_cached` counts prompt tokens that came from the prefix cache at first admission; `num_scored`
    counts those whose log-probabilities have been reported, the first one included. What the other fields ask for: `messages.AddSequence`.
    """

    seq_id: int
    prompt_ids: list[int]
    sampling: SamplingParams
    stop: StopRules
    logprobs: LogprobOptions
    stop_ids: frozenset[int]
    max_tokens: int
    cache_root: bytes
    priority: int = 0
    grammar: str = ""
    thinking: Thinking | None = None
    bad_word_ids: list[list[int]] = field(default_factory=list)
    draft_ids: list[int] = field(default_factory=list)
    scores_processed: bool = False
    group: str = ""
    tenant: str = ""
    embed: EmbedOptions | None = None
    arrival: int = 0
    place: int = 0
    """Its turn in the queue (scheduling/waiting.py)."""
    waits_since: float = 0.0
    is_owed: bool = False
    """It was preempted and has got no token since: it keeps its next seat until then (scheduling/fair_share.py)."""
    output_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_cached: int | None = None
    num_scored: int = 1
    pooled: Any = None
    """What is known of the vector of its prompt (execution/pooling.py), where it shall become one."""
    block_ids: list[int] = field(default_factory=list)
    status: SequenceStatus = SequenceStatus.WAITING

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)

    def token_slice(self, start: int, stop: int) -> list[int]:
        """Known tokens `start..stop`, across prompt and output."""
        num_prompt = len(self.prompt_ids)
        if stop <= num_prompt:
            return self.prompt_ids[start:stop]
        if start >= num_prompt:
            return self.output_ids[start - num_prompt : stop - num_prompt]
        return self.prompt_ids[start:] + self.output_ids[: stop - num_prompt]
