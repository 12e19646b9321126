"""Scale's routes, described. Their answers are those of chat and text completions."""

from __future__ import annotations

from chat.api.openapi.answers import CHAT_EXAMPLE, MODEL_NAME, MODEL_STATES, TEXT_EXAMPLE
from chat.api.openapi.describe import (
    ANY_OBJECT,
    BOOLEAN,
    COMPUTED,
    INTEGER,
    TEXT,
    Operation,
    array,
    body_of,
    many,
    obj,
    one_of,
    query,
    ref,
    text,
)
from chat.api.scale.fields import ScaleChatRequest
from chat.api.scale.text_read import ScaleTextRequest

TAG = "scale"
KEY_HELP = "The key goes into x-api-key, or into Authorization as everywhere. A stream ends with `event: done`."
INSTANT = {**TEXT, "format": "date-time"}
STATE = one_of(*MODEL_STATES)
CREATED = {"created_at": INSTANT, "created_by_identity_type": one_of("user"), "created_by_user_id": TEXT}
CURSORS = (
    query("limit", INTEGER),
    *(query(name) for name in ("starting_after", "ending_before", "model_vendor", "name")),
)
PAGES = (query("page", INTEGER), query("limit", INTEGER), query("model_type"))

SCHEMAS = {
    "ScaleErrorBody": obj(error=ref("ErrorDetail"), message=TEXT, detail=text("The message once more.")),
    "ScaleModel": obj(
        id=text("The served name, with a vendor."),
        **many(TEXT, "account_id name"),
        model_type=one_of("CHAT_COMPLETION"),
        **CREATED,
        deployment_count=INTEGER,
        **many(ANY_OBJECT, "request_schema response_schema"),
        supports_multi_turn=BOOLEAN,
        state=STATE,
    ),
    "ScaleModels": obj(items=array(ref("ScaleModel")), **many(INTEGER, "current_page total_item_count items_per_page")),
    "ScaleChatModel": obj(
        model_name=TEXT,
        model_type=one_of("chat_completion"),
        model_vendor=one_of("model_zoo"),
        model_availability=one_of("available", "unavailable"),
        state=STATE,
    ),
    "ScaleChatModels": obj(object=one_of("list"), items=array(ref("ScaleChatModel"))),
    "ScalePageModel": obj(
        id=text("The served name, with a vendor."),
        name=TEXT,
        object=one_of("model"),
        **CREATED,
        model_type=one_of("chat_completion"),
        model_vendor=one_of("model_zoo"),
        status=one_of("ready", "deploying", "failed"),
        state=STATE,
    ),
    "ScaleModelsPage": obj(items=array(ref("ScalePageModel")), has_more=BOOLEAN),
}
OPERATIONS = (
    *(
        Operation(
            f"POST {path}",
            f"scale_{generation}_create_chat_completion",
            f"Create a chat completion, for Scale's clients ({generation}). {KEY_HELP}",
            body=body_of(ScaleChatRequest, **CHAT_EXAMPLE, model=MODEL_NAME),
            answer="ChatCompletion",
            stream="ChatCompletionChunk",
            error="ScaleErrorBody",
        )
        for generation, path in (("v4", "/v4/beta/chat/completions"), ("v5", "/v5/chat/completions"))
    ),
    Operation(
        "POST /v4/beta/completions",
        "scale_create_completion",
        f"Continue a text, for Scale's clients. {KEY_HELP}",
        body=body_of(ScaleTextRequest, model=MODEL_NAME, prompt=TEXT_EXAMPLE, max_tokens=32),
        answer="TextCompletion",
        stream="TextCompletionChunk",
        error="ScaleErrorBody",
    ),
    *(
        Operation(
            f"GET {path}", name, summary, parameters=parameters, answer=answer, errors=COMPUTED, error="ScaleErrorBody"
        )
        for path, name, summary, parameters, answer in (
            (
                "/v4/models",
                "scale_list_models",
                "List models by page. A page past the end is empty.",
                PAGES,
                "ScaleModels",
            ),
            ("/v4/models/{model_id}", "scale_retrieve_model", "One model. By any of its names.", (), "ScaleModel"),
            (
                "/v5/chat/completions/models",
                "scale_list_chat_models",
                "Models that can be asked. Whether a worker has each ready now.",
                CURSORS,
                "ScaleChatModels",
            ),
            (
                "/v5/models",
                "scale_list_models_page",
                "List models by cursor. Cursors are ids of this list.",
                CURSORS,
                "ScaleModelsPage",
            ),
        )
    ),
)
