"""The contract between the web side and the engine side: frozen dataclasses, standard library only.

Everything that crosses the border between `chat` and `engine` is one of the types exported here. A dialect
translates to and from them; nothing else of the engine is visible to a web process.
"""

from engine.api.errors import EngineError, EngineFailure, EngineUnavailable, ErrorCode, ModelLoadError, RequestError
from engine.api.events import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Event,
    Failed,
    FinishReason,
    Outcome,
    Payload,
    Rejected,
    Timings,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from engine.api.request import GenerationRequest, Json, Message, PromptOptions
from engine.api.sampling import LogprobOptions, SamplingParams, StopRules

__all__ = [
    "Admitted",
    "ChoiceFinished",
    "Completed",
    "Delta",
    "EngineError",
    "EngineFailure",
    "EngineUnavailable",
    "ErrorCode",
    "Event",
    "Failed",
    "FinishReason",
    "GenerationRequest",
    "Json",
    "LogprobOptions",
    "Message",
    "ModelLoadError",
    "Outcome",
    "Payload",
    "PromptOptions",
    "Rejected",
    "RequestError",
    "SamplingParams",
    "StopRules",
    "Timings",
    "TokenLogprob",
    "TopLogprob",
    "Usage",
]
