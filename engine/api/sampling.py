"""How the next token of a request is chosen and when the answer ends. Values are checked by `chat` before they get here.

Meaning of each field: the request schema in docs/api/chat-completions.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The draw. `temperature` below 1e-5 is greedy; `top_k` 0 is off; `seed` None lets the engine draw one at admission."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    @property
    def is_greedy(self) -> bool:
        return self.temperature < 1e-5


@dataclass(frozen=True, slots=True)
class StopRules:
    """When an answer ends. `max_tokens` None means the rest of the context."""

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Which log-probabilities go out: none (`enabled` false), the sampled token's, and `top` alternatives (-1: all)."""

    enabled: bool = False
    top: int = 0
