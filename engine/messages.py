"""The closed set of messages between the worker (Engine) and the core (EngineCore): plain data, packed by link.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.request import EmbedOptions, LogprobOptions, SamplingParams, StopRules


@dataclass(frozen=True, slots=True)
class Thinking:
    """The markers by which the core follows the reasoning of an answer. A grammar applies from its end."""

    start_ids: list[int]
    end_ids: list[int]
    is_open: bool
    """The answer begins inside the reasoning; otherwise it does if `start_ids` come first."""
    budget: int | None = None
    """After so many tokens of reasoning `end_ids` are forced; None: no limit."""
    other_starts: list[list[int]] = field(default_factory=list)
    """Other spellings of the start: beside spaces and line breaks a marker of plain text has other tokens."""
    other_ends: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load the model. Sent when its tokenizer is known to be served: until then a core imports what it needs."""


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Tokens of a prompt whose inputs are vectors of an item of media, not rows of the embedding."""

    key: str
    """Of a DefineMedia that was sent before."""
    start: int
    """The first of `length` tokens."""
    length: int
    first: int = 0
    """The item's vector of the first token."""
    is_whole: bool = False
    """The tokens see each other in both directions, so one step computes them all."""


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """How speech is written down."""

    language: str = ""
    """A code that the model knows; "": as it hears."""
    translates: bool = False
    """Write English, whatever is spoken."""
    temperature: float = 0.0
    """0: the most likely tokens, and warmer ones where these are doubtful."""
    seed: int = 0
    wants_times: bool = False
    """Say when each token is spoken."""


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """A stretch of speech, written down. Times are in seconds from the start of the sound."""

    start_s: float
    end_s: float
    token_ids: list[int]
    """Of text alone."""
    logprobs: list[float]
    """Of each of them."""
    mean_logprob: float = 0.0
    """Of the window's tokens, its end too."""
    silence: float = 0.0
    """The probability that nobody speaks in the window."""
    temperature: float = 0.0
    seek: int = 0
    """Where the window begins, in hundredths of a second."""
    language: str = ""
    token_starts: list[float] = field(default_factory=list)
    token_ends: list[float] = field(default_factory=list)
    """When each token is spoken, if that is asked for."""


@dataclass(frozen=True, slots=True)
class AddSequence:
    """Start a sequence, or go on with one that has output."""

    seq_id: int
    prompt_ids: list[int]
    output_ids: list[int]
    """Tokens that an earlier attempt has generated; generation continues after them."""
    sampling: SamplingParams
    stop: StopRules
    logprobs: LogprobOptions
    stop_ids: list[int]
    max_tokens: int
    cache_root: bytes
    """Sequences with different roots share no blocks."""
    priority: int = 0
    grammar: str = ""
    """The key of a DefineGrammar that was sent before, or ''."""
    thinking: Thinking | None = None
    bad_word_ids: list[list[int]] = field(default_factory=list)
    """Token sequences that must not be completed."""
    draft_ids: list[int] = field(default_factory=list)
    """Tokens that the request predicts the output to begin with."""
    scores_processed: bool = False
    """Take log-probabilities after all masks and penalties, as beam search needs them, not from raw logits."""
    group: str = ""
    """Sequences of one group start one after the other. The tenant is part of it."""
    embed: EmbedOptions | None = None
    """The prompt becomes a vector, and the sequence ends with it."""
    tenant: str = ""
    """Running sequences, blocks and prompt tokens are shared out among tenants."""
    second_start: int = 0
    """Of a pair of texts, the first token of the second one; 0: it is one text, or its tokens say where."""
    score_ids: list[int] | None = None
    """The prompt becomes a score: the tokens for no and yes, of which the second should come next. `embed` is set."""
    adapter_id: int = 0
    """The id of an AddAdapter that was sent before; 0: the model itself."""
    media: list[MediaSpan] = field(default_factory=list)
    """In order of their places; no two overlap."""
    speech: SpeechOptions | None = None
    """The sound of the one item of `media` becomes text; `prompt_ids` are what is said to come before it."""


@dataclass(frozen=True, slots=True)
class DefineGrammar:
    """Define the constraint of the sequences that name `key`."""

    key: str
    backend: str
    """The matcher that reads `payload`."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class ForgetGrammars:
    """Forget grammars that no new sequence names; running sequences keep theirs."""

    keys: list[str]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MediaTensor:
    """One input of the encoder of media."""

    name: str
    dtype: str
    """As numpy spells it."""
    shape: list[int]
    data: bytes


GIVEN = "given"
"""The name of the tensor of an item that is not encoded: its rows are the vectors."""


@dataclass(frozen=True, slots=True)
class DefineMedia:
    """Define an item of media for the sequences that name `key`, which stands for its content and tenant."""

    key: str
    num_vectors: int
    tensors: list[MediaTensor]


@dataclass(frozen=True, slots=True)
class ForgetMedia:
    """Take back one DefineMedia of each key: no new sequence names it. Sequences that were added keep theirs."""

    keys: list[str]


IMAGE_ADAPTER = 1
"""The id of the adapter by which a model sees images. A core reads it with its model, so it is never sent."""


@dataclass(frozen=True, slots=True)
class AddAdapter:
    """Load an adapter, unless it is still held. Answered with AdapterLoaded."""

    adapter_id: int
    """Above IMAGE_ADAPTER; never used again for another adapter."""
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class RemoveAdapter:
    """Forget an adapter that no new sequence names; running sequences keep it."""

    adapter_id: int


@dataclass(frozen=True, slots=True)
class AbortSequences:
    """Free sequences before the next step. Each known one is answered with an aborted SequenceOutput."""

    seq_ids: list[int]


@dataclass(frozen=True, slots=True)
class QueryStats:
    """Ask for a CoreStats; `check_integrity` also verifies the block tables."""

    check_integrity: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceSteps:
    """Send StepStarted before each step from now on; sent to a core that replaces a dead one."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop the loop and leave."""


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """The log-probability of one token, and the alternatives, most likely first. Natural log, from raw logits."""

    logprob: float
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    rank: int = 0
    """1: the most likely. Set for tokens of a prompt only, as is `token_id`."""
    token_id: int = 0


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """The results of one step for one sequence."""

    seq_id: int
    token_ids: list[int]
    logprobs: list[SampledLogprobs] | None = None
    finish: str | None = None
    """None, "stop" (a stop id was sampled, last of `token_ids`), "complete" (the grammar allows nothing more),
    "length", "embedded" (with the `vector`), "transcribed", "aborted" or "failed".
    """
    num_cached: int | None = None
    """Set in the first output of a sequence."""
    started_at: float | None = None
    prompt_logprobs: list[SampledLogprobs] | None = None
    """Of the next tokens of the prompt, in order, without its first token."""
    num_accepted: int = 0
    """Drafts among `token_ids`."""
    num_rejected: int = 0
    failed_param: str = ""
    """The request field that left no token to choose, if that is why the sequence has failed."""
    vector: list[float] | None = None
    segments: list[SpokenSegment] = field(default_factory=list)
    """Of speech, as they become known. The last output, "transcribed", has the `language`, "" if it is not known."""
    language: str = ""


@dataclass(frozen=True, slots=True)
class StepResult:
    """All outputs of one step."""

    outputs: list[SequenceOutput]


@dataclass(frozen=True, slots=True)
class CoreProgress:
    """The progress of loading."""

    phase: str
    """A text for people."""
    fraction: float
    """0..1"""


@dataclass(frozen=True, slots=True)
class ProcessorParameter:
    """One argument of a logits processor."""

    name: str
    kind: str
    """One of "int", "float", "bool", "str", "int_list", "token_ids" and "token_id_lists". The model bounds ids."""
    minimum: float | None = None
    """Of a number, or of those in an "int_list"."""
    maximum: float | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """The declaration of a registered logits processor; `parameters` are in the order of positional arguments."""

    name: str
    parameters: list[ProcessorParameter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CoreReady:
    """The model is loaded."""

    logits_width: int
    max_model_len: int
    num_blocks: int
    """0: the model has no cache."""
    processors: list[ProcessorSpec] = field(default_factory=list)
    hidden_size: int = 0
    computed_by: str = ""
    """Which form each part of the model runs in, for the operator."""
    longest_chunk: int = 0
    """The most tokens that a step computes of a prompt; 0: there is no such bound."""


@dataclass(frozen=True, slots=True)
class AdapterLoaded:
    """An adapter can be used, or the `error` says why not."""

    adapter_id: int
    error: str = ""
    rank: int = 0
    modules: list[str] = field(default_factory=list)
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CoreStats:
    """A snapshot of the core."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_steps: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_spill_places: int = 0
    """Blocks that the spill file has room for."""
    num_used_spill_places: int = 0
    """Blocks that it holds."""
    num_spilled_blocks: int = 0
    """Blocks that the spill file took from the prefix cache."""
    num_restored_blocks: int = 0
    """Blocks that were copied back."""
    num_lost_blocks: int = 0
    """Blocks that the spill file gave up for others."""
    num_generated_tokens: int = 0
    """Counted since the core began, like the next one."""
    busy_us: int = 0
    """Microseconds in turns of the loop that computed."""
    integrity: str = ""
    """The first error in the block tables, or ''."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent once a second by a thread of the core, also during a long step."""

    step_s: float = 0.0
    """How long the present step has lasted; 0 between two."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """Announces the sequences of the step that begins: they are suspects if the core dies of it."""

    seq_ids: list[int]


@dataclass(frozen=True, slots=True)
class CoreFailed:
    """The core cannot go on, or could not load the model."""

    message: str
    """A text for people."""
    detail: str
    """A text for the log."""


ToCore = (
    LoadModel
    | AddSequence
    | DefineGrammar
    | ForgetGrammars
    | DefineMedia
    | ForgetMedia
    | AddAdapter
    | RemoveAdapter
    | AbortSequences
    | QueryStats
    | AnnounceSteps
    | Shutdown
)
FromCore = StepResult | CoreProgress | CoreReady | AdapterLoaded | CoreStats | Heartbeat | StepStarted | CoreFailed
