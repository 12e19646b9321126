"""Scale's routes, described. Their answers are those of chat and text completions."""

from __future__ import annotations

from chat.api.openapi.answers import CHAT_EXAMPLE, MODEL_NAME, MODEL_STATES, TEXT_EXAMPLE
from chat.api.openapi.describe import COMPUTED, requests, routes
from chat.api.openapi.notation import components
from chat.api.scale.fields import ScaleChatRequest
from chat.api.scale.text_read import ScaleTextRequest

SCHEMAS = requests(ScaleChatRequest, ScaleTextRequest) | components(
    """
    ScaleErrorBody = {error: ErrorDetail; message: string; detail: string "The message once more."}
    created = {created_at: instant; created_by_identity_type: 'user'; created_by_user_id: string}
    ScaleModel = {
        ...created; id: string "The served name, with a vendor."; account_id, name: string;
        model_type: 'CHAT_COMPLETION'; deployment_count: integer; request_schema, response_schema: object;
        supports_multi_turn: boolean; state: state
    }
    ScaleModels = {items: [ScaleModel]; current_page, total_item_count, items_per_page: integer}
    ScaleChatModel = {
        model_name: string; model_type: 'chat_completion'; model_vendor: 'model_zoo';
        model_availability: 'available' | 'unavailable'; state: state
    }
    ScaleChatModels = {object: 'list'; items: [ScaleChatModel]}
    ScalePageModel = {
        ...created; id: string "The served name, with a vendor."; name: string; object: 'model';
        model_type: 'chat_completion'; model_vendor: 'model_zoo'; status: 'ready' | 'deploying' | 'failed'; state: state
    }
    ScaleModelsPage = {items: [ScalePageModel]; has_more: boolean}
    """,
    state=MODEL_STATES,
)
CHAT_BODY = {**CHAT_EXAMPLE, "model": MODEL_NAME}
OPERATIONS = routes(
    "scale",
    """
    POST /v4/beta/chat/completions scale_v4_create_chat_completion(ScaleChatRequest)
        -> ChatCompletion stream ChatCompletionChunk
        Create a chat completion, for Scale's clients (v4). The key goes into x-api-key, or into Authorization as
        everywhere. A stream ends with `event: done`.
    POST /v5/chat/completions scale_v5_create_chat_completion(ScaleChatRequest)
        -> ChatCompletion stream ChatCompletionChunk
        Create a chat completion, for Scale's clients (v5). The key goes into x-api-key, or into Authorization as
        everywhere. A stream ends with `event: done`.
    POST /v4/beta/completions scale_create_completion(ScaleTextRequest) -> TextCompletion stream TextCompletionChunk
        Continue a text, for Scale's clients. The key goes into x-api-key, or into Authorization as everywhere. A stream
        ends with `event: done`.
    GET /v4/models scale_list_models(page, limit, model_type) -> ScaleModels
        List models by page. A page past the end is empty.
    GET /v4/models/{model_id} scale_retrieve_model() -> ScaleModel
        One model. By any of its names.
    GET /v5/chat/completions/models
        scale_list_chat_models(limit, starting_after, ending_before, model_vendor, name) -> ScaleChatModels
        Models that can be asked. Whether a worker has each ready now.
    GET /v5/models scale_list_models_page(limit, starting_after, ending_before, model_vendor, name) -> ScaleModelsPage
        List models by cursor. Cursors are ids of this list.
    """,
    query="page, limit: integer; model_type, starting_after, ending_before, model_vendor, name: string",
    errors=COMPUTED,
    error="ScaleErrorBody",
    scale_v4_create_chat_completion=CHAT_BODY,
    scale_v5_create_chat_completion=CHAT_BODY,
    scale_create_completion={"model": MODEL_NAME, "prompt": TEXT_EXAMPLE, "max_tokens": 32},
)
