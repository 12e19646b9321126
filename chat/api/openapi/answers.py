"""The answers of chat and text completions and of lists, which several dialects share, and the routes about the server.

Tests hold what the writers of the dialects make against these schemas.
"""

from __future__ import annotations

from chat.api.openapi.describe import routes
from chat.api.openapi.notation import components, one_of
from chat.api.request.schema import TIERS

STARTING_AFTER = 'starting_after: integer "The number of the last event that was seen."'
ASK = [{"role": "user", "content": "Say hello in one short sentence."}]
CHAT_EXAMPLE = {"messages": ASK, "max_tokens": 32}
FILE = {"filename": "ask.txt", "file_data": "U2F5IGhlbGxvLg=="}
FILE_EXAMPLE = {"messages": [{"role": "user", "content": [{"type": "file", "file": FILE}]}]}
MODEL_NAME = "MODEL_NAME"
"""The page puts the default model here, in examples that need a name."""
TEXT_EXAMPLE = "Light travels in straight lines"
MODEL_STATES = one_of("unloaded", "loading", "ready", "draining", "failed")

SCHEMAS = components(
    """
    ErrorBody = {error: ErrorDetail; message: string}
    ErrorDetail = {message, type: string; param: fault; code: string | null}
    UsageBody = {
        prompt_tokens, completion_tokens, total_tokens: integer; prompt_tokens_details: InputTokens;
        completion_tokens_details: {reasoning_tokens, accepted_prediction_tokens, rejected_prediction_tokens: integer};
        transcription?: {model: string; seconds: number; input_tokens, output_tokens: integer}
            "What writing down the sound of the messages took; not part of the other counts."
    }
    InputTokens = {cached_tokens: integer; audio_tokens?, image_tokens?, video_tokens?: integer "Of media, if any."}
    ItemList = {...page; data: items}
    Deleted = {id, object: string; deleted: boolean}
    Status = {status: string}
    Version = {version: string}

    token_ids = [integer] | null "Where return_token_ids asks for them."
    stop_reason = string | integer | null "The stop string or stop token id, or null."
    last_stop_reason = stop_reason "The stop string or stop token id, or null. On the last chunk of a choice."
    prompt_logprobs = [null | {*: {logprob: number; rank: integer; decoded_token: string}}] | null
        "Per prompt token, from its id and those of the alternatives; the first is null."
    served_tier = tier "The tier used, for requests that sent one."
    head = {id: string "chatcmpl- and the request id."; created: seconds; model, system_fingerprint: string}
    finish = 'stop' | 'length' | 'tool_calls' | 'function_call' | 'repetition'

    token = {token: string; logprob: number; bytes: [integer]}
    LogprobsBody = {content: [{...token; top_logprobs: [token]}]; refusal: string | null}
    logprobs = LogprobsBody | null
    function = {name: string; arguments: string "JSON text; partial where the token limit cut it."}
    AnswerMessage = {
        role: string; content, refusal, reasoning: string | null; annotations, audio: null;
        reasoning_content: string | null "The same as reasoning.";
        tool_calls?: [{id: string; type: 'function'; function: function}];
        function_call: function | null "Only for requests with `functions`."
    }
    AnswerChoice = {
        index: integer; message: AnswerMessage; logprobs: logprobs; finish_reason: finish; stop_reason: stop_reason;
        token_ids: token_ids
    }
    ChatCompletion = {
        ...head; object: 'chat.completion'; choices: [AnswerChoice]; usage: UsageBody; service_tier?: served_tier;
        prompt_logprobs: prompt_logprobs; prompt_token_ids: token_ids;
        prompt_text?: string "Where return_prompt_text asks for it."; kv_transfer_params: null
    }
    function_delta = {name?, arguments?: string}
    ToolCallChunk = {index: integer; id?: string; type?: 'function'; function: function_delta}
    ChunkDelta = {
        role?, content?, reasoning?, reasoning_content?: string; tool_calls?: [ToolCallChunk];
        function_call?: function_delta
    }
    ChunkChoice = {
        index: integer; delta: ChunkDelta; logprobs: logprobs; finish_reason: finish | null;
        stop_reason?: last_stop_reason; token_ids?: token_ids
    }
    ChatCompletionChunk = {
        ...head; object: 'chat.completion.chunk'; choices: [ChunkChoice]; usage?: UsageBody | null;
        prompt_text?: string; service_tier?: served_tier;
        prompt_logprobs?: prompt_logprobs; prompt_token_ids?: token_ids
    } "One data frame of a stream. The first chunk alone has the facts of the prompt."

    TextLogprobsBody = {
        tokens: [string]; token_logprobs: [number | null] "The first token of a prompt has null.";
        top_logprobs: [{*: number} | null] "From text to log-probability.";
        text_offset: [integer] "Characters before each token."
    }
    text_choice = {
        index: integer "Choice c of prompt p is p * n + c."; text: string; logprobs: TextLogprobsBody | null;
        token_ids?, prompt_token_ids?: token_ids; prompt_logprobs?: prompt_logprobs
    }
    text_finish = 'stop' | 'length' | 'repetition'
    TextChoiceBody = {...text_choice; finish_reason: text_finish; stop_reason: stop_reason}
    TextChunkChoice = {...text_choice; finish_reason: text_finish | null; stop_reason?: last_stop_reason}
    text_head = {
        id: string "cmpl- and the request id."; object: 'text_completion'; created: seconds;
        model, system_fingerprint: string; service_tier?: served_tier
    }
    TextCompletion = {...text_head; choices: [TextChoiceBody]; usage: UsageBody}
    TextCompletionChunk = {...text_head; choices: [TextChunkChoice]; usage?: UsageBody | null}
    """,
    tier=one_of(*TIERS),
)
HEALTH = """
    GET /health/live health_live() -> Status
        Alive. The process answers.
    GET /health/ready health_ready() -> Status raises 503
        Ready. A model is loaded.
"""
VERSION = """
    GET /version version() -> Version raises 401 429 500
        Version. Which Lightcone answers.
"""
OPERATIONS = routes("health", HEALTH, errors="", error="Status", needs_key=False) | routes("health", VERSION)
