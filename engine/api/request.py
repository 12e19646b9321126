"""One request to the engine: validated by `chat`, and independent of the dialect in which it came.

docs/api/lightcone.md explains the fields of sampling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.constraint import Constraint

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Message = dict[str, Json]
"""A chat message as the template sees it: `role`, `content` (a string or a list of parts) and any further keys.

    {"type": "text", "text"}
    {"type": "file", "file": {"file_data", "filename"}, "param"}    replaced by its text; errors name `param`
    {"type": "thinking", "closed": false}                           of the assistant: leaves its `reasoning` open
"""


MAX_FILES = 8
"""The most file parts of a request."""
MAX_FILE_CHARS = 1_000_000
"""The most characters of the text of a file."""


class Task(StrEnum):
    """What to do with the prompt."""

    GENERATE = "generate"
    """Answer it; the answer is empty if `StopRules.max_tokens` is 0."""
    READ = "read"
    """Render and tokenise it, even beyond the context. The run is Admitted, then Completed, with no usage."""
    EMBED = "embed"
    """Compute its vector. The run is Admitted, Embedded, then Completed."""
    SCORE = "score"
    """Compute how well a document answers a query. The run is Admitted, Scored, then Completed."""
    TRANSCRIBE = "transcribe"
    """Write down speech. The run is Admitted, SegmentSpoken*, Transcribed, then Completed."""


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt without a template, in place of messages: `text`, `token_ids`, or vectors in place of tokens."""

    text: str = ""
    token_ids: tuple[int, ...] | None = None
    suffix: str | None = None
    """The text after the answer (fill in the middle)."""
    param: str = "prompt"
    """The request field that errors name."""
    document: str | None = None
    """In a SCORE run: `text` is the query, and this the document."""
    max_document_tokens: int | None = None
    """Only the beginning of the document counts, so many of its tokens."""
    is_ordinary: bool = False
    """Control tokens that `text` spells are ordinary text, as they always are beside a suffix."""
    embeds: str | None = None
    """The inputs of the layers (N, E) in place of text: base64, as inputs/sent_tensors.py reads it."""


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """How the hidden states of a prompt become one vector."""

    pooling: str | None = None
    """ "mean" or "last"; None: as the model's files say, and the mean if they say nothing."""
    dimensions: int | None = None
    """Keep only the first dimensions."""
    normalizes: bool | None = None
    """The vector gets length 1; None: as the model's files say, and it does if they say nothing."""


@dataclass(frozen=True, slots=True)
class Speech:
    """The sound of a TRANSCRIBE run, and how it is written down."""

    data: str
    """A file of sound, or a video with some, in base64."""
    param: str = "file"
    """The request field that errors name."""
    language: str = ""
    """A code or an English name; "": as the model hears."""
    translates: bool = False
    """Write English, whatever is spoken."""
    prompt: str = ""
    """Text that is said to come before the sound: it sets names, spelling and style."""
    temperature: float = 0.0
    """0: the most likely tokens, and warmer ones where these are doubtful."""
    wants_words: bool = False
    """Say when each word is spoken."""
    wants_logprobs: bool = False
    """Report the log-probability of each token."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How messages become token ids, and which forms of the prompt `Admitted` carries (`returns_…`)."""

    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    continue_final_message: bool = False
    chat_template: str | None = None
    """Replaces the model's own template. The caller has checked that this is permitted."""
    template_kwargs: dict[str, Json] = field(default_factory=dict)
    """Further variables of the template; those that it does not use are dropped."""
    documents: tuple[dict[str, Json], ...] = ()
    truncate_to: int | None = None
    """Keep at most this many prompt tokens; -1 means the context less one."""
    truncation_side: str = "left"
    """The side that is cut: "left" keeps the end, "right" the beginning."""
    returns_ids: bool = False
    returns_text: bool = False
    returns_tokens: bool = False
    """The text of each token."""
    media_options: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`mm_processor_kwargs` and `media_io_kwargs`, where they hold anything. The caller may set them."""


@dataclass(frozen=True, slots=True)
class ProcessorCall:
    """A logits processor by its name in the server's registry, with its arguments."""

    name: str
    args: tuple[Json, ...] = ()
    kwargs: dict[str, Json] = field(default_factory=dict)


GREEDY_BELOW = 1e-5
"""The temperature below which the most likely token is chosen."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen."""

    temperature: float = 1.0
    """Below GREEDY_BELOW the choice is greedy."""
    top_k: int = 0
    """0 is off."""
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    """None: the engine draws one at admission."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value added to its logit)."""
    allowed_token_ids: tuple[int, ...] | None = None
    """None allows all."""
    bad_words: tuple[str, ...] = ()
    """Texts, which the engine tokenises."""
    processors: tuple[ProcessorCall, ...] = ()
    """Applied in order."""
    processor_args: dict[str, Json] = field(default_factory=dict)
    """Free values (vllm_xargs) that every active processor may read."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True, slots=True)
class RepetitionRule:
    """The rule that ends an answer once a pattern of tokens, of a size in this range, is repeated at its end."""

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2
    """Times in a row."""


@dataclass(frozen=True, slots=True)
class StopRules:
    """When an answer ends."""

    max_tokens: int | None = None
    """None means the rest of the context. 0 computes, and scores, the prompt alone; each choice ends with LENGTH."""
    absent_max_tokens: int | None = None
    """An upper limit where `max_tokens` is None."""
    must_fit: bool = False
    """Refuse a request whose prompt and `max_tokens` exceed the context, instead of lowering the limit."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    repetition: RepetitionRule | None = None


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Which log-probabilities to report."""

    enabled: bool = False
    """Report that of each sampled token."""
    top: int = 0
    """Also report this many alternatives; -1 for the whole vocabulary."""
    token_ids: tuple[int, ...] = ()
    """Report exactly these tokens at each position, instead of the `top` most likely."""
    prompt: int | None = None
    """Also report the prompt's tokens, each with this many alternatives; -1: the whole vocabulary, None: no report."""
    max_all: int | None = None
    """The largest vocabulary that -1 may mean; None for any."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function."""

    name: str
    parameters: Json = None
    """Its JSON Schema, None for a function without arguments."""
    is_strict: bool = False
    """Its arguments are held to the schema."""
    spec: dict[str, Json] = field(default_factory=dict)
    """The tool as the template sees it."""


class ToolMode(StrEnum):
    """How calls are chosen."""

    NONE = "none"
    """The output is not searched for calls."""
    AUTO = "auto"
    """The model decides."""
    REQUIRED = "required"
    """At least one call."""
    NAMED = "named"
    """One call of one function."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The mode, and the functions that may be called."""

    mode: ToolMode = ToolMode.NONE
    names: tuple[str, ...] = ()
    """NAMED: the function. AUTO and REQUIRED: the functions that may be called, empty for all."""
    is_parallel: bool = True
    """False: at most one call."""
    whitespace: str = ""
    closes_objects: bool = True
    """Both for the JSON of enforced calls, as in `Constraint`."""


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """The options of a beam search of width `num_choices`, which is deterministic."""

    length_penalty: float = 1.0
    """A beam's score is its summed log-probability / length ** `length_penalty`."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for `num_choices` independent answers to one list of messages."""

    run_id: str
    """The server's own id of the run, never the client's."""
    model: str
    messages: tuple[Message, ...]
    arrived_at: float
    """Unix seconds."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: StopRules = field(default_factory=StopRules)
    logprobs: LogprobOptions = field(default_factory=LogprobOptions)
    prompt: PromptOptions = field(default_factory=PromptOptions)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    constraint: Constraint | None = None
    num_choices: int = 1
    best_of: int | None = None
    """Generate so many, and report the `num_choices` with the best mean log-probability per token, best first."""
    beam: BeamOptions | None = None
    prediction: str | None = None
    """Text that the answer is expected to repeat. It speeds the output up and never changes it."""
    thinking_token_budget: int | None = None
    """The end of reasoning is forced after this many reasoning tokens."""
    priority: int = 0
    """Lower runs first."""
    tenant: str = ""
    cache_salt: str = ""
    """Requests of different tenants, or with different salts, share no cached prefix."""
    group: str = ""
    """Requests of one tenant with the same group are scheduled together."""
    deadline_at: float | None = None
    """Unix seconds."""
    max_context: int | None = None
    """The most tokens of prompt and answer together that the caller's limits allow; None: the model's context."""
    task: Task = Task.GENERATE
    raw: RawPrompt | None = None
    """The prompt itself; there are no messages then."""
    embed: EmbedOptions = field(default_factory=EmbedOptions)
    """Used by EMBED only."""
    speech: Speech | None = None
    """Used by TRANSCRIBE only; there are neither messages nor `raw` then."""
    adapter: str | None = None
    """The name of a LoRA adapter that the engine has loaded; None: the model itself. The caller has checked that its
    key may use it."""

    @property
    def num_sequences(self) -> int:
        """The number of answers to generate, reported or not."""
        return max(self.num_choices, self.best_of or 0)
