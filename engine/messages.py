"""The closed set of messages between the worker (Engine) and the core (EngineCore).

Plain data; link.py packs it with msgpack.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.request import EmbedOptions
from engine.api.sampling import LogprobOptions, SamplingParams, StopRules


@dataclass(frozen=True, slots=True)
class Thinking:
    """How the core knows where reasoning ends. `is_open`: the answer begins inside it; else it begins if `start_ids`
    come first.

    Grammars wait for the end. After `budget` tokens of reasoning (None: no limit) `end_ids` are forced. `other_starts`
    and `other_ends`: further tokens that say the same, as a marker of plain text is spelled in other tokens beside
    spaces and line breaks.
    """

    start_ids: list[int]
    end_ids: list[int]
    is_open: bool
    budget: int | None = None
    other_starts: list[list[int]] = field(default_factory=list)
    other_ends: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AddSequence:
    """Start a sequence. `output_ids` is non-empty when a run resumes: generation goes on after them.

    `grammar`: the key of a DefineGrammar that went before, or ''. `bad_word_ids`: token sequences that must not be
    completed. `draft_ids`: tokens that the output is expected to begin with. `scores_processed`: log-probabilities are
    taken after all masks and penalties, as beam search wants them, and not from raw logits. `group`: sequences of one
    are seated together; made of tenant and key. `tenant`: seats, blocks and steps are shared out among tenants.
    `embed`: the prompt becomes a vector, and the sequence ends with it.
    """

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
    grammar: str = ""
    thinking: Thinking | None = None
    bad_word_ids: list[list[int]] = field(default_factory=list)
    draft_ids: list[int] = field(default_factory=list)
    scores_processed: bool = False
    group: str = ""
    embed: EmbedOptions | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class DefineGrammar:
    """A compiled constraint for the sequences that name `key`. `backend`: which matcher reads `payload`."""

    key: str
    backend: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ForgetGrammars:
    """No new sequence names these keys any more; running ones keep theirs."""

    keys: list[str]


@dataclass(frozen=True, slots=True)
class AbortSequences:
    """Free these sequences before the next step; unknown ids are ignored.

    Answered with an aborted SequenceOutput for each known one.
    """

    seq_ids: list[int]


@dataclass(frozen=True, slots=True)
class QueryStats:
    """Ask for a CoreStats; `check_integrity` also verifies the block accounts."""

    check_integrity: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceSteps:
    """Send StepStarted before each step from now on; asked of a core that has come in place of a dead one."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop the loop and leave."""


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """Of one token: its own value and the alternatives, most likely first. Natural log, from raw logits.

    `rank` (1: the most likely) is counted for tokens of a prompt only, where `token_id` names the token; otherwise both
    are 0.
    """

    logprob: float
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    rank: int = 0
    token_id: int = 0


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """News of one sequence in one step.

    `finish`: None, "stop" (a stop id was sampled, last of `token_ids`), "complete" (the grammar admits nothing more),
    "length", "embedded" (with the `vector`), "aborted" or "failed"; `failed_param` then names the request field that
    left no token to choose, if one did. `num_cached` is set in the first output of a sequence. `prompt_logprobs`: of
    the prompt's next tokens, in order, the first one left out. `num_accepted`: drafts among `token_ids`;
    `num_rejected`: drafts that this step has tried in vain.
    """

    seq_id: int
    token_ids: list[int]
    logprobs: list[SampledLogprobs] | None = None
    finish: str | None = None
    num_cached: int | None = None
    started_at: float | None = None
    prompt_logprobs: list[SampledLogprobs] | None = None
    num_accepted: int = 0
    num_rejected: int = 0
    failed_param: str = ""
    vector: list[float] | None = None


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
class ProcessorParameter:
    """One argument of a logits processor. `kind`: "int", "float", "bool", "str", "int_list", "token_ids" or
    "token_id_lists".

    `minimum` and `maximum` bound numbers, and those in an "int_list"; a bound of None is none. Token ids are bounded by
    the model.
    """

    name: str
    kind: str
    minimum: float | None = None
    maximum: float | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """What a registered logits processor is called and takes, in the order of positional arguments."""

    name: str
    parameters: list[ProcessorParameter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CoreReady:
    """The model is loaded. `logits_width` is the number of logits per position, `hidden_size` that of numbers in a
    hidden state; `processors` declares the registered logits processors.
    """

    logits_width: int
    max_model_len: int
    num_blocks: int
    max_num_batched_tokens: int
    max_num_seqs: int
    processors: list[ProcessorSpec] = field(default_factory=list)
    hidden_size: int = 0


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
    """Sent once a second by a thread of the core, also during a long step.

    `step_s`: how long the present one has lasted, 0 between two.
    """

    at: float
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepStarted:
    """Said before a step is computed, where it was asked for: should the core die of it, these sequences were in it."""

    seq_ids: list[int]


@dataclass(frozen=True, slots=True)
class CoreFailed:
    """The core cannot go on, or could not load the model; `detail` goes to the log, `message` to people."""

    message: str
    detail: str


ToCore = AddSequence | DefineGrammar | ForgetGrammars | AbortSequences | QueryStats | AnnounceSteps | Shutdown
FromCore = StepResult | CoreProgress | CoreReady | CoreStats | Heartbeat | StepStarted | CoreFailed
