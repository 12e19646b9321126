"""One request to the engine, already validated and in the engine's own words, whatever dialect it came in."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.sampling import LogprobOptions, SamplingParams, StopRules

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Message = dict[str, Json]
"""A chat message as the template sees it: `role`, `content` (a string or a list of parts) and any further keys."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How messages become token ids."""

    add_generation_prompt: bool = True
    add_special_tokens: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`num_choices` independent answers to one list of messages.

    `run_id` is the server's own id of the run (never the client's). `tenant` and `cache_salt` are mixed into the root
    of the prefix-cache hash: requests that differ in either share nothing. `priority`: lower runs first.
    `arrived_at` and `deadline_at` are unix seconds.
    """

    run_id: str
    model: str
    messages: tuple[Message, ...]
    arrived_at: float
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: StopRules = field(default_factory=StopRules)
    logprobs: LogprobOptions = field(default_factory=LogprobOptions)
    prompt: PromptOptions = field(default_factory=PromptOptions)
    num_choices: int = 1
    priority: int = 0
    tenant: str = ""
    cache_salt: str = ""
    deadline_at: float | None = None
