"""The contract between `chat` and `engine`: frozen dataclasses, standard library only.

Everything that crosses the border is one of the names imported here. Dialects translate to and from them; a web process
sees nothing else of the engine.

    request = GenerationRequest("run-1", "qwen2.5", ({"role": "user", "content": "Hi"},), arrived_at=time.time())
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
    Scored,
    SegmentSpoken,
    SpokenWord,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Transcribed,
    Usage,
)
from engine.api.model import KINDS_OF_TASKS, AdapterInfo, MemoryNeed, ModelDescription, ModelKind
from engine.api.prompt_size import check_prompt_fits, is_long
from engine.api.request import (
    MAX_FILE_CHARS,
    MAX_FILES,
    BeamOptions,
    EmbedOptions,
    GenerationRequest,
    Json,
    LogprobOptions,
    Message,
    ProcessorCall,
    PromptOptions,
    RawPrompt,
    RepetitionRule,
    SamplingParams,
    Speech,
    StopRules,
    Task,
    Tool,
    ToolChoice,
    ToolMode,
)
