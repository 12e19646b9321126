"""The API described: an OpenAPI document from the request schema, and a page that shows it.

The completion views are plain async views, which the generator cannot see; so it reads the `*Route` classes below, which are never
routed. A test holds them against the real routes.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.utils import OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import serializers
from rest_framework.views import APIView

from chat.dialects.request.fields import RequestField
from chat.dialects.request.schema import ChatCompletionRequest


class RequestFieldSchema(OpenApiSerializerFieldExtension):
    """Fields of the request schema describe themselves."""

    target_class = RequestField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.target.schema_object()
        return schema


class ErrorDetail(serializers.Serializer):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)


class ErrorBody(serializers.Serializer):
    error = ErrorDetail()
    message = serializers.CharField()


class TopLogprobBody(serializers.Serializer):
    token = serializers.CharField()
    logprob = serializers.FloatField()
    bytes = serializers.ListField(child=serializers.IntegerField())


class TokenLogprobBody(TopLogprobBody):
    top_logprobs = TopLogprobBody(many=True)


class LogprobsBody(serializers.Serializer):
    content = TokenLogprobBody(many=True)
    refusal = serializers.CharField(allow_null=True)


class FunctionCall(serializers.Serializer):
    name = serializers.CharField()
    arguments = serializers.CharField(help_text="JSON text; cut where the token limit cut the answer.")


class ToolCall(serializers.Serializer):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=["function"])
    function = FunctionCall()


class AnswerMessage(serializers.Serializer):
    role = serializers.CharField()
    content = serializers.CharField(allow_null=True, help_text="Null where the model has only called, or only thought.")
    refusal = serializers.CharField(allow_null=True)
    annotations = serializers.JSONField(allow_null=True)
    audio = serializers.JSONField(allow_null=True)
    function_call = FunctionCall(allow_null=True, help_text="Only for requests with the deprecated functions.")
    reasoning = serializers.CharField(allow_null=True)
    reasoning_content = serializers.CharField(allow_null=True, help_text="The same as reasoning.")
    tool_calls = ToolCall(many=True, required=False, help_text="Only where there are any.")


class AnswerChoice(serializers.Serializer):
    index = serializers.IntegerField()
    message = AnswerMessage()
    logprobs = LogprobsBody(allow_null=True)
    finish_reason = serializers.ChoiceField(choices=["stop", "length", "tool_calls", "function_call", "repetition"])
    stop_reason = serializers.JSONField(allow_null=True, help_text="The stop string or stop token id, or null.")
    token_ids = serializers.ListField(child=serializers.IntegerField(), allow_null=True)


class PromptTokensDetails(serializers.Serializer):
    cached_tokens = serializers.IntegerField()


class CompletionTokensDetails(serializers.Serializer):
    reasoning_tokens = serializers.IntegerField()
    accepted_prediction_tokens = serializers.IntegerField()
    rejected_prediction_tokens = serializers.IntegerField()


class UsageBody(serializers.Serializer):
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    total_tokens = serializers.IntegerField()
    prompt_tokens_details = PromptTokensDetails()
    completion_tokens_details = CompletionTokensDetails()


class ChatCompletion(serializers.Serializer):
    id = serializers.CharField(help_text="chatcmpl- and the request id.")
    object = serializers.ChoiceField(choices=["chat.completion"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    model = serializers.CharField()
    choices = AnswerChoice(many=True)
    system_fingerprint = serializers.CharField()
    usage = UsageBody()
    prompt_logprobs = serializers.JSONField(allow_null=True, help_text="Per prompt token null or {id: {logprob, rank, decoded_token}}.")
    prompt_token_ids = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    kv_transfer_params = serializers.JSONField(allow_null=True)
    prompt_text = serializers.CharField(required=False, help_text="Only where asked for.")
    service_tier = serializers.CharField(required=False, help_text="The tier used; only for requests that sent one.")


class Model(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["model"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    owned_by = serializers.CharField()


class ModelList(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    data = Model(many=True)


class Status(serializers.Serializer):
    status = serializers.CharField()


def _errors(*statuses: int) -> dict[Any, Any]:
    return {status: OpenApiResponse(ErrorBody) for status in statuses}


STREAM = OpenApiResponse(str, description="Server-sent events: chat.completion.chunk objects, then [DONE].")


class CompletionRoute(APIView):
    @extend_schema(
        operation_id="create_chat_completion",
        summary="Create a chat completion",
        request=ChatCompletionRequest,
        responses={
            (200, "application/json"): ChatCompletion,
            (200, "text/event-stream"): STREAM,
            **_errors(400, 401, 402, 403, 404, 408, 413, 429, 500, 503),
        },
        tags=["chat"],
    )
    def post(self, request: HttpRequest) -> None:
        """Answer a conversation, at once or as a stream."""


class ModelsRoute(APIView):
    @extend_schema(operation_id="list_models", summary="List models", responses={200: ModelList, **_errors(401, 403)}, tags=["models"])
    def get(self, request: HttpRequest) -> None:
        """The models that the key may use."""


class ModelRoute(APIView):
    @extend_schema(operation_id="retrieve_model", summary="One model", responses={200: Model, **_errors(401, 404)}, tags=["models"])
    def get(self, request: HttpRequest, model_id: str) -> None:
        """One model by name or alias; names may contain slashes."""


class LiveRoute(APIView):
    @extend_schema(operation_id="health_live", summary="Alive", auth=[], responses={200: Status}, tags=["health"])
    def get(self, request: HttpRequest) -> None:
        """The process answers."""


class ReadyRoute(APIView):
    @extend_schema(operation_id="health_ready", summary="Ready", auth=[], responses={200: Status, 503: Status}, tags=["health"])
    def get(self, request: HttpRequest) -> None:
        """A model is loaded."""


class Routes:
    """The described routes as a URL configuration for the generator."""

    urlpatterns = [
        path("v1/chat/completions", CompletionRoute.as_view()),
        path("v1/models", ModelsRoute.as_view()),
        path("v1/models/<path:model_id>", ModelRoute.as_view()),
        path("health/live", LiveRoute.as_view()),
        path("health/ready", ReadyRoute.as_view()),
    ]


schema_view = SpectacularJSONAPIView.as_view(
    patterns=Routes.urlpatterns,
    custom_settings={
        "OAS_VERSION": "3.1.0",
        "APPEND_COMPONENTS": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "SECURITY": [{"key": []}],
    },
)


def docs_view(request: HttpRequest) -> HttpResponse:
    """The API page; its scripts are static files, so that the content policy holds."""
    return render(request, "docs/api.html")
