"""The answers of chat and text completions and of lists, which several dialects share, as JSON Schemas.

The dialects' writers make them; tests hold answers and chunks against these.
"""

from __future__ import annotations

from chat.api.openapi.describe import (
    ANY_OBJECT,
    BOOLEAN,
    INTEGER,
    NULL,
    NUMBER,
    SECONDS,
    TEXT,
    Schema,
    array,
    many,
    obj,
    one_of,
    or_null,
    query,
    ref,
    text,
)
from chat.api.request.schema import TIERS

STARTING_AFTER = query("starting_after", INTEGER, "The number of the last event that was seen.")
ASK = [{"role": "user", "content": "Say hello in one short sentence."}]
CHAT_EXAMPLE = {"messages": ASK, "max_tokens": 32}
MODEL_NAME = "MODEL_NAME"
"""The page puts the default model here, in examples that need a name."""
TEXT_EXAMPLE = "Light travels in straight lines"
MODEL_STATES = ("unloaded", "loading", "ready", "draining", "failed")
FINISH_REASONS = ("stop", "length", "tool_calls", "function_call", "repetition")
TEXT_FINISH_REASONS = ("stop", "length", "repetition")
ITEMS = array({**ANY_OBJECT, "properties": {"type": TEXT}})
TOKEN_IDS: Schema = {
    "type": ["array", "null"],
    "items": INTEGER,
    "description": "Where return_token_ids asks for them.",
}
STOP_REASON: Schema = {
    "type": ["string", "integer", "null"],
    "description": "The stop string or stop token id, or null.",
}
CHUNK_STOP_REASON = {**STOP_REASON, "description": f"{STOP_REASON['description']} On the last chunk of a choice."}
SCORE = obj(logprob=NUMBER, rank=INTEGER, decoded_token=TEXT)
PROMPT_LOGPROBS: Schema = {
    **or_null(array({"oneOf": [NULL, {"type": "object", "additionalProperties": SCORE}]})),
    "description": "Per prompt token, from its id and those of the alternatives; the first is null.",
}
FIELD_AT_FAULT = or_null(text("The dotted path of the field at fault."))
PAGE = {"object": one_of("list"), **many(or_null(TEXT), "first_id last_id"), "has_more": BOOLEAN}
TIER = {**one_of(*TIERS), "description": "The tier used, for requests that sent one."}
CALLED_FUNCTION = obj(name=TEXT, arguments=text("JSON text; partial where the token limit cut it."))
FUNCTION_DELTA = obj({"name": TEXT, "arguments": TEXT})
LOGPROBS = or_null(ref("LogprobsBody"))
TOKEN = {"token": TEXT, "logprob": NUMBER, "bytes": array(INTEGER)}
TEXT_CHOICE = {
    "index": {**INTEGER, "description": "Choice c of prompt p is p * n + c."},
    "text": TEXT,
    "logprobs": or_null(ref("TextLogprobsBody")),
}
TEXT_CHOICE_EXTRAS = {"token_ids": TOKEN_IDS, "prompt_token_ids": TOKEN_IDS, "prompt_logprobs": PROMPT_LOGPROBS}
TEXT_HEAD = {
    "id": text("cmpl- and the request id."),
    "object": one_of("text_completion"),
    "created": SECONDS,
    "model": TEXT,
    "system_fingerprint": TEXT,
}
CHAT_HEAD = {
    "id": text("chatcmpl- and the request id."),
    "created": SECONDS,
    "model": TEXT,
    "system_fingerprint": TEXT,
}

SCHEMAS: dict[str, Schema] = {
    "ErrorBody": obj(error=ref("ErrorDetail"), message=TEXT),
    "ErrorDetail": obj(**many(TEXT, "message type"), param=FIELD_AT_FAULT, code=or_null(TEXT)),
    "UsageBody": obj(
        **many(INTEGER, "prompt_tokens completion_tokens total_tokens"),
        prompt_tokens_details=obj(cached_tokens=INTEGER),
        completion_tokens_details=obj(
            **many(INTEGER, "reasoning_tokens accepted_prediction_tokens rejected_prediction_tokens")
        ),
    ),
    "LogprobsBody": obj(
        content=array(obj(**TOKEN, top_logprobs=array(obj(**TOKEN)))),
        refusal=or_null(TEXT),
    ),
    "AnswerMessage": obj(
        {"tool_calls": array(obj(id=TEXT, type=one_of("function"), function=CALLED_FUNCTION))},
        role=TEXT,
        **many(or_null(TEXT), "content refusal reasoning"),
        **many(NULL, "annotations audio"),
        function_call={**or_null(CALLED_FUNCTION), "description": "Only for requests with `functions`."},
        reasoning_content=or_null(text("The same as reasoning.")),
    ),
    "AnswerChoice": obj(
        index=INTEGER,
        message=ref("AnswerMessage"),
        logprobs=LOGPROBS,
        finish_reason=one_of(*FINISH_REASONS),
        stop_reason=STOP_REASON,
        token_ids=TOKEN_IDS,
    ),
    "ChatCompletion": obj(
        {"prompt_text": text("Where return_prompt_text asks for it."), "service_tier": TIER},
        **CHAT_HEAD,
        object=one_of("chat.completion"),
        choices=array(ref("AnswerChoice")),
        usage=ref("UsageBody"),
        prompt_logprobs=PROMPT_LOGPROBS,
        prompt_token_ids=TOKEN_IDS,
        kv_transfer_params=NULL,
    ),
    "ToolCallChunk": obj({"id": TEXT, "type": one_of("function")}, index=INTEGER, function=FUNCTION_DELTA),
    "ChunkDelta": obj(
        {
            **many(TEXT, "role content reasoning reasoning_content"),
            "tool_calls": array(ref("ToolCallChunk")),
            "function_call": FUNCTION_DELTA,
        }
    ),
    "ChunkChoice": obj(
        {"stop_reason": CHUNK_STOP_REASON, "token_ids": TOKEN_IDS},
        index=INTEGER,
        delta=ref("ChunkDelta"),
        logprobs=LOGPROBS,
        finish_reason=one_of(*FINISH_REASONS, None),
    ),
    "ChatCompletionChunk": {
        **obj(
            {
                "usage": or_null(ref("UsageBody")),
                "prompt_logprobs": PROMPT_LOGPROBS,
                "prompt_token_ids": TOKEN_IDS,
                "prompt_text": TEXT,
                "service_tier": TIER,
            },
            **CHAT_HEAD,
            object=one_of("chat.completion.chunk"),
            choices=array(ref("ChunkChoice")),
        ),
        "description": "One data frame of a stream. The first chunk alone has the facts of the prompt.",
    },
    "TextLogprobsBody": obj(
        tokens=array(TEXT),
        token_logprobs={**array(or_null(NUMBER)), "description": "The first token of a prompt has null."},
        top_logprobs={
            **array({"type": ["object", "null"], "additionalProperties": NUMBER}),
            "description": "From text to log-probability.",
        },
        text_offset={**array(INTEGER), "description": "Characters before each token."},
    ),
    "TextChoiceBody": obj(
        TEXT_CHOICE_EXTRAS, **TEXT_CHOICE, finish_reason=one_of(*TEXT_FINISH_REASONS), stop_reason=STOP_REASON
    ),
    "TextChunkChoice": obj(
        {**TEXT_CHOICE_EXTRAS, "stop_reason": CHUNK_STOP_REASON},
        **TEXT_CHOICE,
        finish_reason=one_of(*TEXT_FINISH_REASONS, None),
    ),
    "TextCompletion": obj(
        {"service_tier": TIER}, **TEXT_HEAD, choices=array(ref("TextChoiceBody")), usage=ref("UsageBody")
    ),
    "TextCompletionChunk": obj(
        {"service_tier": TIER, "usage": or_null(ref("UsageBody"))}, **TEXT_HEAD, choices=array(ref("TextChunkChoice"))
    ),
    "ItemList": obj(**PAGE, data=ITEMS),
    "Deleted": obj(id=TEXT, object=TEXT, deleted=BOOLEAN),
}
