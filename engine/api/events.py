"""The events of a run, in order.

    Admitted | Rejected        exactly one, first; Rejected is terminal: nothing was computed for the client
    Embedded                   once, in an EMBED run
    Scored                     once, in a SCORE run
    SegmentSpoken*, Transcribed    in a TRANSCRIBE run: stretches of speech in order, then the language once
    PromptScored               once, before the first Delta, if log-probabilities of the prompt were requested
    Delta*                     new tokens of one choice, in order; its texts may be empty while text is held back
    ChoiceFinished             once per choice; nothing follows for that choice
    Completed | Failed         exactly one, last, after Admitted

Positions: a run has one counter, which its choices share. A Delta covers one position per token id, and has at least
one; every other event covers one. `start + count` of an event is the `start` of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.errors import EngineError, ErrorCode


class FinishReason(StrEnum):
    """Why a choice ended, as clients see it."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    REPETITION = "repetition"


class Outcome(StrEnum):
    """The terminal state of a run; the request log has exactly one per run."""

    FINISHED = "finished"
    STOPPED = "stopped"
    DISCONNECTED = "disconnected"
    """The client closed the connection."""
    INTERRUPTED = "interrupted"
    """The web process broke off the answer."""
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    FAILED = "failed"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One alternative at a position."""

    token_id: int
    logprob: float
    token: str
    token_bytes: bytes
    """Raw, also where they are no complete UTF-8."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token with its log-probability."""

    token_id: int
    logprob: float
    token: str
    token_bytes: bytes
    top: tuple[TopLogprob, ...] = ()
    """The most likely tokens, best first, ties by id."""


@dataclass(frozen=True, slots=True)
class RankedLogprob:
    """A token at a position of the prompt. `rank`: 1 is the most likely."""

    token_id: int
    logprob: float
    rank: int
    token: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts of a run."""

    prompt_tokens: int = 0
    """Counted once, whatever the number of choices."""
    cached_tokens: int = 0
    completion_tokens: int = 0
    """The sum over all choices."""
    reasoning_tokens: int = 0
    """Part of `completion_tokens`."""
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    """Not part of `completion_tokens`."""
    audio_tokens: int = 0
    """Of sound; part of `prompt_tokens`, like the next two."""
    image_tokens: int = 0
    video_tokens: int = 0
    audio_seconds: float = 0.0

    @property
    def media_tokens(self) -> dict[str, int]:
        """The tokens of a prompt that stand for media, by kind; of kinds that it has."""
        tokens = {"audio": self.audio_tokens, "image": self.image_tokens, "video": self.video_tokens}
        return {kind: number for kind, number in tokens.items() if number}


@dataclass(frozen=True, slots=True)
class Timings:
    """Unix seconds; None for a stage that the run never reached."""

    arrived_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Every check has passed; the 200 may be sent. The forms of the prompt are set if `PromptOptions` asks for them."""

    num_prompt_tokens: int
    max_tokens: int
    """The limit of each choice."""
    seed: int
    prompt_ids: tuple[int, ...] | None = None
    prompt_text: str | None = None
    prompt_tokens: tuple[str, ...] | None = None
    context_length: int | None = None
    """Set in READ runs only."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request cannot be served; the answer is a plain 4xx or 503."""

    code: ErrorCode
    message: str
    param: str | None = None
    limit: int | None = None
    """As `EngineError.limit`."""
    value: int | None = None

    @classmethod
    def by(cls, error: EngineError) -> Rejected:
        return cls(error.code, error.message, error.param, error.limit, error.value)


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Per position of the prompt the token itself, then alternatives, best first. The first position is empty."""

    entries: tuple[tuple[RankedLogprob, ...], ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of a prompt, of length 1 but for models whose files say otherwise."""

    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """How well a document answers a query: from 0 to 1, but for rerankers whose files ask for raw scores."""

    score: float


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word with the seconds when it is spoken. `text` has the punctuation that follows it, and no space around."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class SegmentSpoken:
    """A stretch of speech, written down. `text` begins with the space that parts it from the one before."""

    start_s: float
    end_s: float
    text: str
    token_ids: tuple[int, ...] = ()
    mean_logprob: float = 0.0
    compression_ratio: float = 0.0
    """How much smaller the text becomes when it is compressed: above 2.4 it repeats itself."""
    silence: float = 0.0
    """The probability that nobody speaks."""
    temperature: float = 0.0
    seek: int = 0
    """Where the window of the segment begins, in hundredths of a second."""
    words: tuple[SpokenWord, ...] = ()
    """If they are asked for, as `logprobs`."""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcribed:
    """All of a sound is written down."""

    language: str
    """A code, "" if the model does not know it."""
    seconds: float
    """Of the sound."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of call number `index` of a choice: first `id` and `name`, then more of `arguments` (JSON text)."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens of a choice, and the text that they release: complete UTF-8, with stop strings removed.

    The order is `reasoning`, then `text` (the content), then `tool_calls`.
    """

    choice: int
    token_ids: tuple[int, ...]
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """The end of a choice, with the `reasoning`, `text` and `tool_calls` that were still held back."""

    choice: int
    reason: FinishReason
    stop_reason: str | int | None = None
    """The stop string or stop id, None otherwise."""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """All choices have ended, or the run was ended early, as `outcome` says."""

    outcome: Outcome
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The run failed after its admission."""

    code: ErrorCode
    message: str
    usage: Usage = field(default_factory=Usage)
    timings: Timings | None = None
    outcome: Outcome = Outcome.FAILED
    param: str | None = None
    """The request field that left no token to choose, if one did."""


Payload = (
    Admitted
    | Rejected
    | PromptScored
    | Embedded
    | Scored
    | SegmentSpoken
    | Transcribed
    | Delta
    | ChoiceFinished
    | Completed
    | Failed
)


@dataclass(frozen=True, slots=True)
class Event:
    """A payload with the positions that it covers."""

    start: int
    count: int
    payload: Payload

    @property
    def is_terminal(self) -> bool:
        return isinstance(self.payload, Completed | Failed | Rejected)
