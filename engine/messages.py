"""The closed set of messages between the worker (Engine) and the core (EngineCore). Plain data; link.py packs it with msgpack."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.sampling import LogprobOptions, SamplingParams, StopRules


@dataclass(frozen=True, slots=True)
class AddSequence:
    """Start a sequence. `output_ids` is non-empty when a run resumes: generation goes on after them."""

    seq_id: int
    prompt_ids: list[int]
    output_ids: list[int]
    sampling: SamplingParams
    stop: StopRules
    logprobs: LogprobOptions
    stop_ids: list[int]
    max_tokens: int
    cache_root: bytes
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AbortSequences:
    """Free these sequences before the next step; unknown ids are ignored. Answered with an aborted SequenceOutput for each known one."""

    seq_ids: list[int]


@dataclass(frozen=True, slots=True)
class QueryStats:
    """Ask for a CoreStats; `check_integrity` also verifies the block accounts."""

    check_integrity: bool = False


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop the loop and leave."""


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """Of one sampled token: its own value and the alternatives, most likely first. Natural log, from raw logits."""

    logprob: float
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """News of one sequence in one step. `finish`: None, "stop" (a stop id was sampled), "length", "aborted" or "failed".

    `num_cached` is set in the first output of a sequence.
    """

    seq_id: int
    token_ids: list[int]
    logprobs: list[SampledLogprobs] | None = None
    finish: str | None = None
    num_cached: int | None = None
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """All news of one step."""

    outputs: list[SequenceOutput]


@dataclass(frozen=True, slots=True)
class CoreProgress:
    """Loading: `phase` for people, `fraction` 0..1."""

    phase: str
    fraction: float


@dataclass(frozen=True, slots=True)
class CoreReady:
    """The model is loaded. `logits_width` is the number of logits per position."""

    logits_width: int
    max_model_len: int
    num_blocks: int
    step_tokens: int
    max_sequences: int


@dataclass(frozen=True, slots=True)
class CoreStats:
    """A snapshot of the core. `integrity` is the text of the first broken block account, or ''."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_steps: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_preemptions: int
    integrity: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent once a second by a thread of the core, also during a long step."""

    at: float


@dataclass(frozen=True, slots=True)
class CoreFailed:
    """The core cannot go on, or could not load the model; `detail` goes to the log, `message` to people."""

    message: str
    detail: str


ToCore = AddSequence | AbortSequences | QueryStats | Shutdown
FromCore = StepResult | CoreProgress | CoreReady | CoreStats | Heartbeat | CoreFailed
