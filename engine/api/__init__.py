"""The contract between the web side and the engine side: frozen dataclasses, standard library only.

Everything that crosses the border between `chat` and `engine` is one of the types exported here. A dialect
translates to and from them; nothing else of the engine is visible to a web process.
"""

from engine.api.constraint import COMPACT, Constraint, ConstraintKind
from engine.api.errors import EngineError, EngineFailure, EngineUnavailable, ErrorCode, ModelLoadError, RequestError
from engine.api.events import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Embedded,
    Event,
    Failed,
    FinishReason,
    Outcome,
    Payload,
    PromptScored,
    RankedLogprob,
    Rejected,
    Timings,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from engine.api.prompt_size import check_prompt_fits, is_long
from engine.api.request import BeamOptions, EmbedOptions, GenerationRequest, Message, PromptOptions, RawPrompt, Task
from engine.api.sampling import LogprobOptions, ProcessorCall, RepetitionRule, SamplingParams, StopRules
from engine.api.tools import Json, Tool, ToolCallDelta, ToolChoice, ToolMode

__all__ = [
    "Admitted",
    "BeamOptions",
    "COMPACT",
    "ChoiceFinished",
    "Completed",
    "Constraint",
    "ConstraintKind",
    "Delta",
    "EmbedOptions",
    "Embedded",
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
    "ProcessorCall",
    "PromptOptions",
    "PromptScored",
    "RankedLogprob",
    "RawPrompt",
    "Rejected",
    "RepetitionRule",
    "RequestError",
    "SamplingParams",
    "StopRules",
    "Task",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolCallDelta",
    "ToolChoice",
    "ToolMode",
    "TopLogprob",
    "Usage",
    "check_prompt_fits",
    "is_long",
]
