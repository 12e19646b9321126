"""One request to the engine, already validated and in the engine's own words, whatever dialect it came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.constraint import Constraint
from engine.api.sampling import LogprobOptions, SamplingParams, StopRules
from engine.api.tools import Json, Tool, ToolChoice

Message = dict[str, Json]
"""A chat message as the template sees it: `role`, `content` (a string or a list of parts) and any further keys.

Parts are `{"type": "text", "text"}`; `{"type": "file", "file": {"file_data", "filename"}, "param"}`, whose text the engine puts in their
place (`param` is what refusals of the file name); and, of the assistant, an empty `{"type": "thinking", "closed": false}` that leaves the
`reasoning` of the message open.
"""


class Task(StrEnum):
    """What becomes of the prompt.

    GENERATE: it is answered, by nothing where `StopRules.max_tokens` is 0. READ: it is rendered and tokenised, whatever its length; the run
    is Admitted, then Completed, and uses nothing. EMBED: its vector is computed; the run is Admitted, Embedded, then Completed.
    """

    GENERATE = "generate"
    READ = "read"
    EMBED = "embed"


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt without a template, in place of messages: `text`, or `token_ids`. `suffix`: what the answer leads to (fill in the middle).

    Control tokens that `text` spells are control tokens: who writes the whole prompt writes those too. Where it `is_ordinary`, and beside a
    suffix, where the engine writes them, they are ordinary text. Errors call it `param`.
    """

    text: str = ""
    token_ids: tuple[int, ...] | None = None
    suffix: str | None = None
    param: str = "prompt"
    is_ordinary: bool = False


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """How the hidden states of a prompt become one vector of length 1. `pooling`: "mean" or "last"; `dimensions`: only its first ones."""

    pooling: str = "mean"
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How messages become token ids.

    `chat_template` replaces the model's own (the caller has checked that this is permitted); `template_kwargs` are further variables
    of the template, of which those that it does not use are dropped. `truncate_to`: keep at most this many prompt tokens (-1: the context
    less one), from the end, or from the beginning where `truncation_side` is "right". `returns_ids`, `returns_text`,
    `returns_tokens`: `Admitted` carries the prompt, the last as the text of each token.
    """

    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    continue_final_message: bool = False
    chat_template: str | None = None
    template_kwargs: dict[str, Json] = field(default_factory=dict)
    documents: tuple[dict[str, Json], ...] = ()
    truncate_to: int | None = None
    truncation_side: str = "left"
    returns_ids: bool = False
    returns_text: bool = False
    returns_tokens: bool = False


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """Deterministic beam search of width `num_choices`; scores are summed log-probabilities over length ** `length_penalty`."""

    length_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`num_choices` independent answers to one list of messages.

    `run_id` is the server's own id of the run (never the client's). `tenant` and `cache_salt` are mixed into the root
    of the prefix-cache hash: requests that differ in either share nothing. `priority`: lower runs first.
    `arrived_at` and `deadline_at` are unix seconds.

    `best_of`: generate this many choices and report the `num_choices` of the best mean log-probability per token, best first.
    `prediction`: text that the answer is expected to repeat; it speeds up, and never changes, the output. `thinking_token_budget`: the end
    of the reasoning is forced after this many tokens of it. `group`: requests of one tenant with one group are seated together.
    `raw`: the prompt itself, then there are no messages. `embed`: of EMBED alone.
    """

    run_id: str
    model: str
    messages: tuple[Message, ...]
    arrived_at: float
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: StopRules = field(default_factory=StopRules)
    logprobs: LogprobOptions = field(default_factory=LogprobOptions)
    prompt: PromptOptions = field(default_factory=PromptOptions)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    constraint: Constraint | None = None
    num_choices: int = 1
    best_of: int | None = None
    beam: BeamOptions | None = None
    prediction: str | None = None
    thinking_token_budget: int | None = None
    priority: int = 0
    tenant: str = ""
    cache_salt: str = ""
    group: str = ""
    deadline_at: float | None = None
    task: Task = Task.GENERATE
    raw: RawPrompt | None = None
    embed: EmbedOptions = field(default_factory=EmbedOptions)

    @property
    def num_sequences(self) -> int:
        """How many answers are generated, reported or not."""
        return max(self.num_choices, self.best_of or 0)
