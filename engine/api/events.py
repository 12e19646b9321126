"""What the engine reports about a run, in order.

    Admitted | Rejected        exactly one, first. Rejected is terminal: nothing was computed for the client.
    Delta*                     new tokens of one choice, in order; `text` may be empty while text is held back
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


class FinishReason(StrEnum):
    """Why a choice ended, as clients see it."""

    STOP = "stop"
    LENGTH = "length"


class Outcome(StrEnum):
    """Terminal state of a run; exactly one per run, in the request log."""

    FINISHED = "finished"
    STOPPED = "stopped"
    DISCONNECTED = "disconnected"
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
class Usage:
    """Token counts of a run. `prompt_tokens` is counted once, `completion_tokens` over all choices."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Unix seconds; None where the run never got there."""

    arrived_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Every check has passed; the 200 may be sent. `max_tokens` is the limit that holds per choice."""

    num_prompt_tokens: int
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request cannot be served; becomes a plain 4xx or 503."""

    code: ErrorCode
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens of a choice and the text that they release (complete UTF-8; stop strings already cut)."""

    choice: int
    token_ids: tuple[int, ...]
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """End of a choice. `text` is what was still held back; `stop_reason`: the stop string, the stop token id, or None."""

    choice: int
    reason: FinishReason
    stop_reason: str | int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Completed:
    """All choices have ended, or the run was ended early (`outcome` tells); the exact usage."""

    outcome: Outcome
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The run broke after its admission."""

    code: ErrorCode
    message: str
    usage: Usage = field(default_factory=Usage)
    timings: Timings | None = None
    outcome: Outcome = Outcome.FAILED


Payload = Admitted | Rejected | Delta | ChoiceFinished | Completed | Failed


@dataclass(frozen=True, slots=True)
class Event:
    """A payload with the positions that it covers."""

    start: int
    count: int
    payload: Payload

    @property
    def is_terminal(self) -> bool:
        return isinstance(self.payload, Completed | Failed | Rejected)
