"""One sequence inside the core, and the steps that compute sequences. The scheduler writes both; the others read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from engine.api.request import EmbedOptions, SamplingParams
from engine.messages import AddSequence


class SequenceStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class InputSpan(NamedTuple):
    """Tokens `start..end` of a prompt with the inputs of their rows: `vectors` (end - start, E)."""

    start: int
    end: int
    vectors: Any
    places: Any = None
    """Time, row and column by which the rows turn, (3, end - start), where the model's layers know these."""
    deep: Any = None
    """What is added to the rows behind each of the first layers, (L, end - start, E), where the model has such."""
    shift: int = 0
    """What the positions of the tokens behind it differ by from their numbers: an image takes as many as it is wide or
    high."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request and its progress: steps compute the known tokens (prompt, then output) from `num_computed` on."""

    request: AddSequence
    block_ids: list[int] = field(default_factory=list)
    """Cache blocks in the order of positions, one of each group for every span (scheduling/blocks.py)."""
    num_placed: int = 0
    """Positions, from the first on, that have their blocks."""
    num_computed: int = 0
    """Tokens that have their keys and values in `block_ids`."""
    num_cached: int | None = None
    """Prompt tokens that came from the prefix cache when the sequence first ran."""
    num_scored: int = 1
    """Prompt tokens whose log-probabilities have been reported; the first one has none and counts as reported."""
    pooled: Any = None
    """The state of a prompt that becomes a vector (execution/prompts.py)."""
    status: SequenceStatus = SequenceStatus.WAITING
    arrival: int = 0
    place: int = 0
    """Its turn in the queue (scheduling/waiting.py)."""
    waits_since: float = 0.0
    is_restoring: bool = False
    """It runs, and its next spans are in the spill file: they are copied back before it is computed."""
    adapter_index: int = 0
    """Where the core holds its adapter (layers/adapters.py); 0: it has none."""
    inputs: tuple[InputSpan, ...] = ()
    """Of the media in its prompt, in order (execution/media.py)."""
    inputs_end: int = 0
    """The token behind the last of them."""
    shift: int = 0
    """That of the last of them, and so of all tokens behind."""
    is_owed: bool = False
    """It was preempted and has got no token since; its next run lasts until then (scheduling/fair_share.py)."""

    # The fields of the request that every step reads have slots of their own.
    seq_id: int = field(init=False)
    prompt_ids: list[int] = field(init=False)
    output_ids: list[int] = field(init=False)
    sampling: SamplingParams = field(init=False)
    """`seed` is never None here."""
    stop_ids: frozenset[int] = field(init=False)
    """Tokens that end the sequence when sampled, EOS included unless the request ignores it."""
    max_tokens: int = field(init=False)
    priority: int = field(init=False)
    tenant: str = field(init=False)
    embed: EmbedOptions | None = field(init=False)
    whole_spans: tuple[tuple[int, int], ...] = field(init=False)
    """Start and end of tokens that one step computes, as they see each other in both directions."""

    def __post_init__(self) -> None:
        request = self.request
        self.seq_id = request.seq_id
        self.prompt_ids = request.prompt_ids
        self.output_ids = list(request.output_ids)
        self.sampling = request.sampling
        self.stop_ids = frozenset(request.stop_ids)
        self.max_tokens = request.max_tokens
        self.priority = request.priority
        self.tenant = request.tenant
        self.embed = request.embed
        self.whole_spans = tuple((span.start, span.start + span.length) for span in request.media if span.is_whole)

    def with_output(self, output_ids: list[int]) -> Sequence:
        """Return a sequence of the same request with other output, of which nothing is computed."""
        other = Sequence(self.request)
        other.output_ids = output_ids
        return other

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)

    def span_cut_at(self, position: int) -> tuple[int, int] | None:
        """Return the span of `whole_spans` that a chunk which ends before `position` would cut; None if none."""
        for start, end in self.whole_spans:
            if start < position < end:
                return start, end
        return None

    def end_reason(self, capacity_tokens: int) -> str | None:
        """Return why the sequence ends with its last token: "stop" (a stop id) or "length"; None if it goes on.

        Ask after every single token. `capacity_tokens`: positions of the whole cache.
        """
        output_ids = self.output_ids
        if output_ids[-1] in self.stop_ids and len(output_ids) > self.request.stop.min_tokens:
            return "stop"
        if len(output_ids) >= self.max_tokens or self.num_tokens > capacity_tokens:
            return "length"
        return None

    def token_slice(self, start: int, stop: int) -> list[int]:
        """Return the known tokens `start..stop`, across prompt and output."""
        num_prompt = len(self.prompt_ids)
        if stop <= num_prompt:
            return self.prompt_ids[start:stop]
        if start >= num_prompt:
            return self.output_ids[start - num_prompt : stop - num_prompt]
        return self.prompt_ids[start:] + self.output_ids[: stop - num_prompt]


class Chunk(NamedTuple):
    """The known tokens `start..start + num_tokens` of a sequence. A named tuple, as many are made in each step."""

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    """The chunk reaches the last known token, so a next one is drawn. False for a prompt that becomes a vector."""
    draft_ids: tuple[int, ...] = ()
    """Tokens that may come next; they are computed behind the known ones, so that one can be drawn after each."""

    @property
    def num_positions(self) -> int:
        return self.num_tokens + len(self.draft_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The work of one step, never empty. Chunks of one position at the end of the known tokens come first."""

    chunks: tuple[Chunk, ...]


class Finished(NamedTuple):
    """A sequence that has ended."""

    sequence: Sequence
    reason: str
    """As `SequenceOutput.finish`; "failed" if its chunk sampled nothing."""
