"""The logits processors that a request names, checked against what the core has declared. Names are looked up, never imported."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError
from engine.api.sampling import SamplingParams
from engine.inputs.limits import ContextLimits
from engine.sampling.processors.arguments import bind_arguments


def check_processors(sampling: SamplingParams, limits: ContextLimits) -> None:
    """Every name must be registered and its arguments must be as declared. Raises RequestError."""
    specs = {spec.name: spec for spec in limits.processors}
    for index, call in enumerate(sampling.processors):
        spec = specs.get(call.name)
        if spec is None:
            known = ", ".join(sorted(specs)) or "none"
            message = f"there is no logits processor {call.name[:200]!r}; this server has {known[:600]}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, "logits_processors")
        bind_arguments(spec, call, sampling.processor_args, limits.logits_width, f"logits_processors.{index}")
