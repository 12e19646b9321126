"""How the next token is chosen, and when the answer ends (docs/api/lightcone.md). `chat` has checked the values."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.tools import Json


@dataclass(frozen=True, slots=True)
class ProcessorCall:
    """A logits processor by its name in the server's registry, with its arguments."""

    name: str
    args: tuple[Json, ...] = ()
    kwargs: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters of the draw."""

    temperature: float = 1.0
    """Below 1e-5 the choice is greedy."""
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
        return self.temperature < 1e-5


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
