"""A request between its dialect and its model: checked, typed and the same for all dialects.

body (JSON)  →  ParsedRequest          `Dialect.parse`: no database, no model
             →  GenerationRequest      `generation_request`: the model's defaults and the key's rights are known

Parts that no default of a model changes have the engine's own types. A dialect with more to remember has a subclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from chat.errors import FieldNames, names_unchanged
from engine.api import (
    BeamOptions,
    Constraint,
    EmbedOptions,
    Json,
    LogprobOptions,
    PromptOptions,
    RawPrompt,
    SamplingParams,
    Speech,
    StopRules,
    Task,
    Tool,
    ToolChoice,
)


@dataclass(frozen=True, slots=True)
class DrawFields:
    """The fields of the draw for which a model has defaults. None means that the request leaves the field out."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """What to generate, and from which prompt."""

    draw: DrawFields = field(default_factory=DrawFields)
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """The rest of the draw; the fields of `draw` are at the engine's defaults."""
    stop: StopRules = field(default_factory=StopRules)
    logprobs: LogprobOptions = field(default_factory=LogprobOptions)
    prompt: PromptOptions = field(default_factory=PromptOptions)
    tools: tuple[Tool, ...] = ()
    """Those of the deprecated `functions` too."""
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    constraint: Constraint | None = None
    num_choices: int = 1
    best_of: int | None = None
    beam: BeamOptions | None = None
    prediction: str | None = None
    thinking_token_budget: int | None = None
    cache_salt: str = ""
    group: str = ""
    task: Task = Task.GENERATE
    raw: RawPrompt | None = None
    """The prompt itself. `messages`, if there are any, are then only checked."""
    embed: EmbedOptions = field(default_factory=EmbedOptions)
    speech: Speech | None = None
    kv_transfer_params: Json = None
    media_options: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """`mm_processor_kwargs` and `media_io_kwargs`, where they hold anything. `rights_check` refuses them."""

    @property
    def max_choices(self) -> int:
        """The number of answers to generate, reported or not."""
        return max(self.num_choices, self.best_of or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """What the answer holds, and in which form."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    stream_interval: int = 1
    """Tokens per chunk."""
    echo: bool = False
    includes_reasoning: bool = True
    names_tokens_by_id: bool = False
    answers_function_call: bool = False
    """The request used the deprecated `functions`."""
    parallel_tool_calls: bool | None = True
    """As sent, for dialects that repeat it."""
    echo_fields: Mapping[str, Any] = field(default_factory=dict)
    """What the dialect's answers repeat of the request (JSON)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """How the request is scheduled, logged and kept."""

    priority: int = 0
    service_tier: str | None = None
    timeout_s: float | None = None
    """Seconds from the arrival after which the request is given up."""
    request_id: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    prompt_cache_key: str | None = None
    store: bool | None = None
    ignored: tuple[str, ...] = ()
    """Fields and tools that were passed over."""
    is_further: bool = False
    """One more run of an HTTP request that the limits have counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A checked request of any dialect."""

    model: str | None = None
    model_names: tuple[str, ...] | None = None
    """The names that `model` may stand for; the first that exists counts. None: `model` alone."""
    messages: Sequence[Any] = ()
    """As JSON; `messages.messages_walk` checks them once the model is known."""
    generation: GenerationParams = field(default_factory=GenerationParams)
    response: ResponseOptions = field(default_factory=ResponseOptions)
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    field_names: FieldNames = field(default=names_unchanged, compare=False)
    """How the client named the fields, for errors of later steps."""

    @classmethod
    def extending(cls, parsed: ParsedRequest, **own: Any) -> Self:
        """Return a request of this subclass with the parts of `parsed` and its `own` fields."""
        return cls(**{name: getattr(parsed, name) for name in ParsedRequest.__dataclass_fields__} | own)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsRequest(ParsedRequest):
    """A checked request with a run for each of its prompts."""

    prompts: Sequence[RawPrompt]

    def of(self, index: int) -> ParsedRequest:
        """Return the request of the run of prompt number `index`."""
        return ParsedRequest(
            model=self.model,
            model_names=self.model_names,
            generation=replace(self.generation, raw=self.prompts[index]),
            response=self.response,
            delivery=replace(self.delivery, is_further=index > 0),
        )
