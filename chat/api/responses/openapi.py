"""The Responses API, stored chat completions and resumed streams, described for `chat.api.openapi.document`; never run."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.openapi.answers import ITEMS, PAGING, ChatCompletion, ChatCompletionChunk, ErrorBody, ItemList, shaped
from chat.api.request.fields import RequestField
from chat.api.request.objects import Metadata
from chat.api.request.schema import ChatCompletionRequest
from chat.api.responses.schema import ALIKE, FURTHER, ResponseRequest


class Input(RequestField):
    """Described only; items.py reads it."""

    json_schema = {"oneOf": [{"type": "string"}, {**ITEMS, "minItems": 1}]}


class ToolChoice(RequestField):
    """Described only."""

    json_schema = {
        "oneOf": [
            {"type": "string", "enum": ["none", "auto", "required"]},
            {"type": "object", "additionalProperties": True},
        ]
    }


def _request() -> Any:
    # NOTE: the declared ones; those of an instance are bound to it.
    chat = ChatCompletionRequest._declared_fields
    own = ResponseRequest._declared_fields
    shared = {name: chat[name] for name in (*ALIKE, *dict.fromkeys(FURTHER)) if name in chat}
    given = {
        "input": Input(help_text="Text or items."),
        "tool_choice": ToolChoice(help_text="Which functions may, or must, be called."),
    }
    return inline_serializer("ResponseRequest", {**given, **own, **shared})


class ResponseBody(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["response"])
    created_at = serializers.IntegerField()
    completed_at = serializers.IntegerField(allow_null=True)
    status = serializers.ChoiceField(
        choices=["completed", "incomplete", "failed", "cancelled", "queued", "in_progress"]
    )
    model = serializers.CharField()
    output = shaped(ITEMS, "Reasoning, messages and function calls, in order.")
    usage = shaped({"type": ["object", "null"]}, "Tokens of input and output.")
    error = shaped({"type": ["object", "null"]}, "Of a failed response: code and message.")
    incomplete_details = shaped({"type": ["object", "null"]}, "Of an incomplete response: reason.")
    metadata = shaped({"type": "object", "additionalProperties": {"type": "string"}}, "As sent.")


class ResponseEvent(serializers.Serializer):
    type = serializers.CharField(help_text="As the frame is named.")
    sequence_number = serializers.IntegerField()


class Deleted(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.CharField()
    deleted = serializers.BooleanField()


class InputTokenCount(serializers.Serializer):
    object = serializers.ChoiceField(choices=["response.input_tokens"])
    input_tokens = serializers.IntegerField()


def _errors(*statuses: int) -> dict[Any, Any]:
    return {status: OpenApiResponse(ErrorBody) for status in statuses}


FETCHED = _errors(400, 401, 403, 404, 429, 500, 503)
COMPUTED = _errors(400, 401, 402, 403, 404, 408, 413, 429, 500, 503)
STREAM = OpenApiResponse(ResponseEvent, description="With stream: true, server-sent events, named as their type.")
STARTING_AFTER = OpenApiParameter("starting_after", int, description="The number of the last event that was seen.")


class ResponsesRoute(APIView):
    @extend_schema(
        operation_id="create_response",
        summary="Create a response",
        request=_request(),
        responses={(200, "application/json"): ResponseBody, (200, "text/event-stream"): STREAM, **COMPUTED},
        tags=["responses"],
    )
    def post(self, request: HttpRequest) -> None:
        """Answer items in the shape of OpenAI's Responses API, at once, as a stream, or in the background."""


class ResponseRoute(APIView):
    @extend_schema(
        operation_id="retrieve_response",
        summary="One response",
        parameters=[OpenApiParameter("stream", bool), STARTING_AFTER],
        responses={(200, "application/json"): ResponseBody, (200, "text/event-stream"): STREAM, **FETCHED},
        tags=["responses"],
    )
    def get(self, request: HttpRequest, response_id: str) -> None:
        """A stored response as it is now, or its events behind a number."""

    @extend_schema(
        operation_id="delete_response",
        summary="Delete a response",
        responses={200: Deleted, **FETCHED},
        tags=["responses"],
        request=None,
    )
    def delete(self, request: HttpRequest, response_id: str) -> None:
        """Forget a response; one in the background is stopped."""


class ResponseCancelRoute(APIView):
    @extend_schema(
        operation_id="cancel_response",
        summary="Cancel a response",
        request=None,
        responses={200: ResponseBody, **FETCHED},
        tags=["responses"],
    )
    def post(self, request: HttpRequest, response_id: str) -> None:
        """End a background response."""


class ResponseItemsRoute(APIView):
    @extend_schema(
        operation_id="list_response_input_items",
        summary="What a response was asked",
        parameters=PAGING,
        responses={200: ItemList, **FETCHED},
        tags=["responses"],
    )
    def get(self, request: HttpRequest, response_id: str) -> None:
        """The input items, with those of the responses before."""


class InputTokensRoute(APIView):
    @extend_schema(
        operation_id="count_response_input_tokens",
        summary="Count the tokens of an input",
        request=_request(),
        responses={200: InputTokenCount, **COMPUTED},
        tags=["responses"],
    )
    def post(self, request: HttpRequest) -> None:
        """How many tokens the prompt of such a response has."""


class StoredRoute(APIView):
    @extend_schema(
        operation_id="retrieve_chat_completion",
        summary="One stored chat completion",
        responses={200: ChatCompletion, **FETCHED},
        tags=["chat"],
    )
    def get(self, request: HttpRequest, completion_id: str) -> None:
        """A stored chat completion, or the whole answer of a resumable one."""

    @extend_schema(
        operation_id="update_chat_completion",
        summary="Label a stored chat completion",
        request=inline_serializer(
            "Labels", {"metadata": Metadata(nullable=False, is_required=True, help_text="Replaces the labels.")}
        ),
        responses={200: ChatCompletion, **FETCHED},
        tags=["chat"],
    )
    def post(self, request: HttpRequest, completion_id: str) -> None:
        """Replace the labels."""

    @extend_schema(
        operation_id="delete_chat_completion",
        summary="Delete a stored chat completion",
        responses={200: Deleted, **FETCHED},
        tags=["chat"],
    )
    def delete(self, request: HttpRequest, completion_id: str) -> None:
        """Forget a stored chat completion."""


class StoredMessagesRoute(APIView):
    @extend_schema(
        operation_id="list_chat_completion_messages",
        summary="The messages of a stored chat completion",
        parameters=PAGING,
        responses={200: ItemList, **FETCHED},
        tags=["chat"],
    )
    def get(self, request: HttpRequest, completion_id: str) -> None:
        """The messages as they were sent."""


class EventsRoute(APIView):
    @extend_schema(
        operation_id="resume_chat_completion",
        summary="Pick a stream up",
        parameters=[STARTING_AFTER],
        responses={(200, "text/event-stream"): OpenApiResponse(ChatCompletionChunk), **FETCHED},
        tags=["chat"],
    )
    def get(self, request: HttpRequest, completion_id: str) -> None:
        """The chunks of a resumable chat completion behind a number, then live."""


urlpatterns = [
    path("v1/chat/completions/<str:completion_id>", StoredRoute.as_view()),
    path("v1/chat/completions/<str:completion_id>/events", EventsRoute.as_view()),
    path("v1/chat/completions/<str:completion_id>/messages", StoredMessagesRoute.as_view()),
    path("v1/responses", ResponsesRoute.as_view()),
    path("v1/responses/input_tokens", InputTokensRoute.as_view()),
    path("v1/responses/<str:response_id>", ResponseRoute.as_view()),
    path("v1/responses/<str:response_id>/cancel", ResponseCancelRoute.as_view()),
    path("v1/responses/<str:response_id>/input_items", ResponseItemsRoute.as_view()),
]
