"""What the engine reports about a run, in order.

    Admitted | Rejected        exactly one, first. Rejected is terminal: nothing was computed for the client.
    Embedded                   once, of an EMBED run
    PromptScored               once, before the first Delta, where log-probabilities of the prompt were asked for
    Delta*                     new tokens of one choice, in order; its texts may be empty while text is held back
    ChoiceFinished             once per choice; nothing follows for that choice
    Completed | Failed         exactly one, last, after Admitted

Positions. A run has one counter. A Delta covers one position per token id (at least one: the flush of held-back text at
the end of a choice that has no new token travels in ChoiceFinished.text); every other event covers one position.
`start + count` of an event is the `start` of the next. Choices share the counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.errors import ErrorCode
from engine.api.tools import ToolCallDelta


class FinishReason(StrEnum):
    """Why a choice ended, as clients see it."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    REPETITION = "repetition"


class Outcome(StrEnum):
    """Terminal state of a run; exactly one per run, in the request log. DISCONNECTED: by its client; INTERRUPTED: by the server, whose web
    process broke the answer off."""

    FINISHED = "finished"
    STOPPED = "stopped"
    DISCONNECTED = "disconnected"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    FAILED = "failed"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One alternative at a position. `token_bytes` are the token's own raw bytes."""

    token_id: int
    logprob: float
    token: str
    token_bytes: bytes


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token with its log-probability and the `top` most likely ones, best first, ties by id."""

    token_id: int
    logprob: float
    token: str
    token_bytes: bytes
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class RankedLogprob:
    """A token at a position of the prompt. `rank`: 1 is the most likely."""

    token_id: int
    logprob: float
    rank: int
    token: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a run. `prompt_tokens` is counted once, `completion_tokens` over all choices.

    `reasoning_tokens` are part of `completion_tokens`, `rejected_prediction_tokens` are not.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Unix seconds; None where the run never got there."""

    arrived_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Every check has passed; the 200 may be sent. `max_tokens` is the limit that holds per choice.

    `prompt_ids`, `prompt_text` and `prompt_tokens` only where `PromptOptions` asks for them; `context_length` of READ runs alone.
    """

    num_prompt_tokens: int
    max_tokens: int
    seed: int
    prompt_ids: tuple[int, ...] | None = None
    prompt_text: str | None = None
    prompt_tokens: tuple[str, ...] | None = None
    context_length: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request cannot be served; becomes a plain 4xx or 503."""

    code: ErrorCode
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log-probabilities of the prompt: per position the token itself, then the alternatives, best first. The first position is empty."""

    entries: tuple[tuple[RankedLogprob, ...], ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of a prompt, of length 1."""

    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens of a choice and what they release (complete UTF-8; stop strings already cut).

    In order: `reasoning`, then `text` (the content), then `tool_calls`.
    """

    choice: int
    token_ids: tuple[int, ...]
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """End of a choice. `reasoning`, `text`, `tool_calls`: what was still held back; `stop_reason`: the stop string, the id, or None."""

    choice: int
    reason: FinishReason
    stop_reason: str | int | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """All choices have ended, or the run was ended early (`outcome` tells); the exact usage."""

    outcome: Outcome
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The run broke after its admission. `param`: the request field that left no token to choose, if one did."""

    code: ErrorCode
    message: str
    usage: Usage = field(default_factory=Usage)
    timings: Timings | None = None
    outcome: Outcome = Outcome.FAILED
    param: str | None = None


Payload = Admitted | Rejected | PromptScored | Embedded | Delta | ChoiceFinished | Completed | Failed


@dataclass(frozen=True, slots=True)
class Event:
    """A payload with the positions that it covers."""

    start: int
    count: int
    payload: Payload

    @property
    def is_terminal(self) -> bool:
        return isinstance(self.payload, Completed | Failed | Rejected)
