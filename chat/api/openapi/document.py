"""The API described: an OpenAPI document from the request schema, which api_docs.py shows.

The completion views are plain async views, which the generator cannot see; so it reads the `*Route` classes below, which are never
routed. A test holds them against the real routes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.views import APIView

from chat.api.openapi.answers import (
    PAGING,
    ChatCompletion,
    ChatCompletionChunk,
    ErrorBody,
    ItemList,
    Model,
    ModelList,
    Status,
)
from chat.api.request.fields import RequestField
from chat.api.request.schema import ChatCompletionRequest


class RequestFieldSchema(OpenApiSerializerFieldExtension):
    """Fields of the request schema describe themselves."""

    target_class = RequestField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.target.schema_object()
        return schema


def _errors(*statuses: int) -> dict[Any, Any]:
    return {status: OpenApiResponse(ErrorBody) for status in statuses}


STREAM = OpenApiResponse(
    ChatCompletionChunk, description="With stream: true, server-sent events: one of these in each, then [DONE]."
)


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

    @extend_schema(
        operation_id="list_chat_completions",
        summary="List stored chat completions",
        parameters=[*PAGING, OpenApiParameter("model", str)],
        responses={200: ItemList, **_errors(400, 401, 403, 429, 500, 503)},
        tags=["chat"],
    )
    def get(self, request: HttpRequest) -> None:
        """Chat completions of the key's project that were stored; by labels with metadata[NAME]=VALUE."""


class ModelsRoute(APIView):
    @extend_schema(
        operation_id="list_models",
        summary="List models",
        responses={200: ModelList, **_errors(401, 403, 429, 500)},
        tags=["models"],
    )
    def get(self, request: HttpRequest) -> None:
        """The models that the key may use, under each of their names: aliases are entries of their own."""


class ModelRoute(APIView):
    @extend_schema(
        operation_id="retrieve_model",
        summary="One model",
        responses={200: Model, **_errors(401, 403, 404, 429, 500)},
        tags=["models"],
    )
    def get(self, request: HttpRequest, model_id: str) -> None:
        """One model by name or alias; names may contain slashes."""


class LiveRoute(APIView):
    @extend_schema(operation_id="health_live", summary="Alive", auth=[], responses={200: Status}, tags=["health"])
    def get(self, request: HttpRequest) -> None:
        """The process answers."""


class ReadyRoute(APIView):
    @extend_schema(
        operation_id="health_ready", summary="Ready", auth=[], responses={200: Status, 503: Status}, tags=["health"]
    )
    def get(self, request: HttpRequest) -> None:
        """A model is loaded."""


urlpatterns = [
    path("v1/chat/completions", CompletionRoute.as_view()),
    path("v1/models", ModelsRoute.as_view()),
    path("v1/models/<path:model_id>", ModelRoute.as_view()),
    path("health/live", LiveRoute.as_view()),
    path("health/ready", ReadyRoute.as_view()),
]


def document_view(routes: list[URLPattern]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Make the view of the OpenAPI document of these described routes."""
    view: Callable[[HttpRequest], HttpResponseBase] = SpectacularJSONAPIView.as_view(
        patterns=routes,
        custom_settings={
            "OAS_VERSION": "3.1.0",
            "APPEND_COMPONENTS": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
            "SECURITY": [{"key": []}],
            "POSTPROCESSING_HOOKS": [
                "drf_spectacular.hooks.postprocess_schema_enums",
                "chat.api.openapi.examples.examples_add",
            ],
        },
    )
    return view
