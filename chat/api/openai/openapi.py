"""The routes of OpenAI's shape, described: chat completions and stored ones, models, text completions, tokens,
embeddings.
"""

from __future__ import annotations

from chat.api.openai.embeddings import EmbeddingRequest
from chat.api.openai.tokens import DetokenizeRequest, TokenizeRequest
from chat.api.openapi.answers import CHAT_EXAMPLE, MODEL_STATES, STARTING_AFTER, TEXT_EXAMPLE
from chat.api.openapi.describe import (
    ANY_OBJECT,
    FETCHED,
    INTEGER,
    NUMBER,
    PAGING,
    SECONDS,
    TEXT,
    Body,
    Operation,
    array,
    body_of,
    many,
    obj,
    one_of,
    or_null,
    query,
    ref,
    text,
)
from chat.api.request.objects import Metadata
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.text_schema import CompletionRequest

TAG = "chat"
STORED = "/v1/chat/completions/{completion_id}"
CHAT = body_of(ChatCompletionRequest, **CHAT_EXAMPLE)
LABELS = Body(
    "Labels",
    {"metadata": Metadata(nullable=False, is_required=True, help_text="Replaces the labels.")},
    {"metadata": {"topic": "greetings"}},
)
DEFAULTS = "temperature top_p min_p presence_penalty frequency_penalty repetition_penalty"

SCHEMAS = {
    "Model": obj(
        {"state_reason": text("Progress, or why it failed; for keys with the right usage_read.")},
        **many(TEXT, "id owned_by"),
        object=one_of("model"),
        created=SECONDS,
        state=one_of(*MODEL_STATES),
        max_model_len={**or_null(INTEGER), "description": "Context in tokens; null before the model was first loaded."},
        default_parameters={
            **obj(
                **many(NUMBER, DEFAULTS),
                top_k=INTEGER,
                max_completion_tokens={**or_null(INTEGER), "description": "null: the rest of the context."},
            ),
            "description": "The values of fields that a request leaves out.",
        },
    ),
    "ModelList": obj(object=one_of("list"), data=array(ref("Model"))),
    "Tokens": {
        **obj(
            {**many(INTEGER, "count max_model_len"), "token_strs": {"type": ["array", "null"], "items": TEXT}},
            tokens=array({"type": ["integer", "object"]}),
        ),
        "description": "Beside `content` only `tokens`, with `with_pieces` as objects of id and piece.",
    },
    "DetokenizedText": obj(prompt=TEXT, content=text("The same.")),
    "RenderedChat": obj(
        object=one_of("chat.completion.prompt"),
        **many(TEXT, "model prompt"),
        token_ids=array(INTEGER),
        **many(INTEGER, "num_tokens max_model_len"),
        sampling_params={**ANY_OBJECT, "description": "What would be used, defaults included."},
    ),
    "Embedding": obj(
        object=one_of("embedding"),
        index=INTEGER,
        embedding={"oneOf": [array(NUMBER), TEXT], "description": "Numbers, or base64."},
    ),
    "EmbeddingList": obj(
        object=one_of("list"),
        data=array(ref("Embedding")),
        model=TEXT,
        usage=obj(**many(INTEGER, "prompt_tokens total_tokens")),
    ),
}
OPERATIONS = (
    Operation(
        "POST /v1/chat/completions",
        "create_chat_completion",
        "Create a chat completion. At once or as a stream: server-sent events with one chunk in each, then [DONE].",
        body=CHAT,
        answer="ChatCompletion",
        stream="ChatCompletionChunk",
    ),
    Operation(
        "GET /v1/chat/completions",
        "list_chat_completions",
        "List stored chat completions. Those of the key's project; by labels with metadata[NAME]=VALUE.",
        parameters=(*PAGING, query("model")),
        answer="ItemList",
        errors=(400, 401, 403, 429, 500, 503),
    ),
    Operation(
        f"GET {STORED}",
        "retrieve_chat_completion",
        "One stored chat completion. Or the whole answer of a resumable one.",
        answer="ChatCompletion",
    ),
    Operation(
        f"POST {STORED}",
        "update_chat_completion",
        "Replace the labels of a stored chat completion",
        body=LABELS,
        answer="ChatCompletion",
        errors=FETCHED,
    ),
    Operation(f"DELETE {STORED}", "delete_chat_completion", "Delete a stored chat completion", answer="Deleted"),
    Operation(
        f"GET {STORED}/messages",
        "list_chat_completion_messages",
        "The messages of a stored chat completion. As they were sent.",
        parameters=PAGING,
        answer="ItemList",
    ),
    Operation(
        f"GET {STORED}/events",
        "resume_chat_completion",
        "Resume a stream. The chunks of a resumable chat completion behind a number, then live.",
        parameters=(STARTING_AFTER,),
        stream="ChatCompletionChunk",
    ),
    Operation(
        "GET /v1/models",
        "list_models",
        "List models. Those that the key may use, under each of their names: aliases are entries of their own.",
        answer="ModelList",
        errors=(401, 403, 429, 500),
        tag="models",
    ),
    Operation(
        "GET /v1/models/{model_id}",
        "retrieve_model",
        "One model. By name or alias; names may contain slashes.",
        answer="Model",
        errors=(401, 403, 404, 429, 500),
        tag="models",
    ),
    Operation(
        "POST /v1/completions",
        "create_completion",
        "Continue a text. Without a chat and a template; as a stream, server-sent events with one chunk in each, "
        "then [DONE].",
        body=body_of(CompletionRequest, prompt=TEXT_EXAMPLE, max_tokens=32),
        answer="TextCompletion",
        stream="TextCompletionChunk",
        tag="prompts",
    ),
    Operation(
        "POST /v1/chat/completions/render",
        "render_chat_completion",
        "The prompt of a chat. As the model would read it, and how an answer would be drawn.",
        body=CHAT,
        answer="RenderedChat",
        tag="prompts",
    ),
    Operation(
        "POST /v1/embeddings",
        "create_embeddings",
        "Text to vectors. A vector of length 1 per input, made of the hidden states of the served model.",
        body=body_of(EmbeddingRequest, input=TEXT_EXAMPLE),
        answer="EmbeddingList",
        tag="prompts",
    ),
    Operation(
        "POST /tokenize",
        "tokenize",
        "Text to tokens. Of a text, or of a conversation in `messages` with the fields that make its prompt.",
        body=body_of(TokenizeRequest, content=TEXT_EXAMPLE),
        answer="Tokens",
        tag="prompts",
    ),
    Operation(
        "POST /detokenize",
        "detokenize",
        "Tokens to text",
        body=body_of(DetokenizeRequest, tokens=[100, 200, 300]),
        answer="DetokenizedText",
        tag="prompts",
    ),
)
