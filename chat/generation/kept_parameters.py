"""How an answer was asked for, for the request log: what differs from the defaults, without texts."""

from __future__ import annotations

from typing import Any

from engine.api import GenerationRequest, SamplingParams, StopRules, Task

NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
LIMITS = ("max_tokens", "min_tokens", "ignore_eos")


def parameters_kept(request: GenerationRequest) -> dict[str, Any]:
    """Return the parameters of a request by the names that clients know."""
    kept = _differing(request.sampling, SamplingParams(), NUMBERS) | _differing(request.stop, StopRules(), LIMITS)
    counted = {
        "messages": len(request.messages),
        "stop_strings": len(request.stop.stop),
        "logit_bias_entries": len(request.sampling.logit_bias),
        "tools": len(request.tools),
        "n": request.num_choices if request.num_choices > 1 else 0,
        "best_of": request.best_of,
        "priority": request.priority,
        "thinking_token_budget": request.thinking_token_budget,
        "beam_width": request.num_choices if request.beam else 0,
        "top_logprobs": request.logprobs.top,
    }
    kept |= {name: value for name, value in counted.items() if value}
    if request.tools:
        kept["tool_choice"] = request.tool_choice.mode.value
    if request.constraint is not None:
        kept["structured_output"] = True
    if request.task is not Task.GENERATE:
        kept["task"] = request.task.value
    return kept


def _differing(values: Any, defaults: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(values, name)) != getattr(defaults, name)}
