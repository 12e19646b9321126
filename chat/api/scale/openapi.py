"""Scale's routes as `chat.api.openapi.document` describes them. Their answers are those of chat and text completions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.openapi.answers import (
    MODEL_STATES,
    ChatCompletion,
    ChatCompletionChunk,
    ErrorBody,
    TextCompletion,
    TextCompletionChunk,
    shaped,
)
from chat.api.scale.fields import ScaleChatRequest
from chat.api.scale.text_read import ScaleTextRequest

ANY = {"type": "object", "additionalProperties": True}
KEY_HELP = "The key goes into x-api-key, or into Authorization as everywhere."
ERRORS = (400, 401, 402, 403, 404, 408, 413, 429, 500, 503)
CURSORS = ("limit", "starting_after", "ending_before")
STREAM_HELP = "With stream: true, server-sent events: one of these in each, then `event: done` with [DONE]."


class ScaleErrorBody(ErrorBody):
    detail = serializers.CharField(help_text="The message once more.")


class ScaleModel(serializers.Serializer):
    id = serializers.CharField(help_text="The served name, with a vendor.")
    account_id = serializers.CharField()
    name = serializers.CharField()
    model_type = serializers.ChoiceField(choices=["CHAT_COMPLETION"])
    created_at = serializers.DateTimeField()
    created_by_identity_type = serializers.ChoiceField(choices=["user"])
    created_by_user_id = serializers.CharField()
    deployment_count = serializers.IntegerField()
    request_schema = shaped(ANY)
    response_schema = shaped(ANY)
    supports_multi_turn = serializers.BooleanField()
    state = serializers.ChoiceField(choices=MODEL_STATES)


class ScaleModels(serializers.Serializer):
    items = ScaleModel(many=True)
    current_page = serializers.IntegerField()
    total_item_count = serializers.IntegerField()
    items_per_page = serializers.IntegerField()


class ScaleChatModel(serializers.Serializer):
    model_name = serializers.CharField()
    model_type = serializers.ChoiceField(choices=["chat_completion"])
    model_vendor = serializers.ChoiceField(choices=["model_zoo"])
    model_availability = serializers.ChoiceField(choices=["available", "unavailable"])
    state = serializers.ChoiceField(choices=MODEL_STATES)


class ScaleChatModels(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    items = ScaleChatModel(many=True)


class ScalePageModel(serializers.Serializer):
    id = serializers.CharField(help_text="The served name, with a vendor.")
    name = serializers.CharField()
    object = serializers.ChoiceField(choices=["model"])
    created_at = serializers.DateTimeField()
    created_by_identity_type = serializers.ChoiceField(choices=["user"])
    created_by_user_id = serializers.CharField()
    model_type = serializers.ChoiceField(choices=["chat_completion"])
    model_vendor = serializers.ChoiceField(choices=["model_zoo"])
    status = serializers.ChoiceField(choices=["ready", "deploying", "failed"])
    state = serializers.ChoiceField(choices=MODEL_STATES)


class ScaleModelsPage(serializers.Serializer):
    items = ScalePageModel(many=True)
    has_more = serializers.BooleanField()


def _answers(answer: type[serializers.Serializer], chunk: type[serializers.Serializer] | None = None) -> dict[Any, Any]:
    stream = {(200, "text/event-stream"): OpenApiResponse(chunk, description=STREAM_HELP)} if chunk else {}
    return {
        (200, "application/json"): answer,
        **stream,
        **{status: OpenApiResponse(ScaleErrorBody) for status in ERRORS},
    }


def _query(*names: str) -> list[OpenApiParameter]:
    return [OpenApiParameter(name, int if name in ("page", "limit") else str) for name in names]


def _chat(generation: str) -> Any:
    return extend_schema(
        operation_id=f"scale_{generation}_create_chat_completion",
        summary=f"Create a chat completion, for Scale's clients ({generation})",
        description=KEY_HELP,
        request=ScaleChatRequest,
        responses=_answers(ChatCompletion, ChatCompletionChunk),
        tags=["scale"],
    )


class ScaleChatRoute(APIView):
    @_chat("v4")
    def post(self, request: HttpRequest) -> None: ...


class ScaleChatV5Route(APIView):
    @_chat("v5")
    def post(self, request: HttpRequest) -> None: ...


class ScaleTextRoute(APIView):
    @extend_schema(
        operation_id="scale_create_completion",
        summary="Go on with a text, for Scale's clients",
        description=KEY_HELP,
        request=ScaleTextRequest,
        responses=_answers(TextCompletion, TextCompletionChunk),
        tags=["scale"],
    )
    def post(self, request: HttpRequest) -> None: ...


class ScaleModelsRoute(APIView):
    @extend_schema(
        operation_id="scale_list_models",
        summary="List models by page",
        parameters=_query("page", "limit", "model_type"),
        responses=_answers(ScaleModels),
        tags=["scale"],
    )
    def get(self, request: HttpRequest) -> None:
        """A page past the end is empty."""


class ScaleModelRoute(APIView):
    @extend_schema(
        operation_id="scale_retrieve_model", summary="One model", responses=_answers(ScaleModel), tags=["scale"]
    )
    def get(self, request: HttpRequest, model_id: str) -> None:
        """One model by any name that a request may give it."""


class ScaleChatModelsRoute(APIView):
    @extend_schema(
        operation_id="scale_list_chat_models",
        summary="Models that can be asked",
        parameters=_query(*CURSORS, "model_vendor", "name"),
        responses=_answers(ScaleChatModels),
        tags=["scale"],
    )
    def get(self, request: HttpRequest) -> None:
        """Whether a worker has each model ready now."""


class ScaleModelsPageRoute(APIView):
    @extend_schema(
        operation_id="scale_list_models_page",
        summary="List models by cursor",
        parameters=_query(*CURSORS, "model_vendor", "name"),
        responses=_answers(ScaleModelsPage),
        tags=["scale"],
    )
    def get(self, request: HttpRequest) -> None:
        """Cursors are ids of this list."""


urlpatterns = [
    path("v4/beta/chat/completions", ScaleChatRoute.as_view()),
    path("v5/chat/completions", ScaleChatV5Route.as_view()),
    path("v4/beta/completions", ScaleTextRoute.as_view()),
    path("v4/models", ScaleModelsRoute.as_view()),
    path("v4/models/<path:model_id>", ScaleModelRoute.as_view()),
    path("v5/chat/completions/models", ScaleChatModelsRoute.as_view()),
    path("v5/models", ScaleModelsPageRoute.as_view()),
]
