"""How the next token of a request is chosen and when the answer ends. Values are checked by `chat` before they get here.

Meaning of each field: the request schema in docs/api/lightcone.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.tools import Json


@dataclass(frozen=True, slots=True)
class ProcessorCall:
    """A logits processor of the server's registry, by name, with what the request passes to it."""

    name: str
    args: tuple[Json, ...] = ()
    kwargs: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The draw. `temperature` below 1e-5 is greedy; `top_k` 0 is off; `seed` None lets the engine draw one at admission.

    `logit_bias`: (token id, value added to its logit). `allowed_token_ids` None allows all. `bad_words` are texts; the engine
    tokenises them. `processors` apply in order; `processor_args` are free values (vllm_xargs) that every active processor may read.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    processors: tuple[ProcessorCall, ...] = ()
    processor_args: dict[str, Json] = field(default_factory=dict)

    @property
    def is_greedy(self) -> bool:
        return self.temperature < 1e-5


@dataclass(frozen=True, slots=True)
class RepetitionRule:
    """End the answer when its last `min_count` repeats of one pattern of `min_pattern_size..max_pattern_size` tokens are identical."""

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2


@dataclass(frozen=True, slots=True)
class StopRules:
    """When an answer ends. `max_tokens` None means the rest of the context, and at most `absent_max_tokens` where that is set; 0 asks for
    the prompt alone: it is computed and, where that is asked for, scored; then each choice ends for its length.

    `must_fit`: a request whose prompt and `max_tokens` are more than the context is refused; else the limit is lowered to what is left.
    """

    max_tokens: int | None = None
    absent_max_tokens: int | None = None
    must_fit: bool = False
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
    """Which log-probabilities go out: none (`enabled` false), the sampled token's, and `top` alternatives (-1: all).

    `token_ids`: exactly these at each position, instead of the `top` most likely. `prompt`: of the prompt's tokens too, each with this many
    alternatives (-1: all; None: none). `max_all`: how many all may be at most (None: any number).
    """

    enabled: bool = False
    top: int = 0
    token_ids: tuple[int, ...] = ()
    prompt: int | None = None
    max_all: int | None = None
