"""The routes of Anthropic's Messages API and their bodies, described for `chat.api.openapi.document`; never run."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.anthropic.schema import CountTokensRequest, MessagesRequest
from chat.api.openapi.answers import shaped

TEXT = {"type": "string"}
BLOCK = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"type": {"const": "text"}, "text": TEXT, "citations": {"type": "null"}},
            "required": ["type", "text"],
        },
        {
            "type": "object",
            "properties": {"type": {"const": "thinking"}, "thinking": TEXT, "signature": TEXT},
            "required": ["type", "thinking", "signature"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "tool_use"},
                "id": {"type": "string"},
                "name": {"type": "string"},
                "input": {"type": "object"},
            },
            "required": ["type", "id", "name", "input"],
        },
    ]
}


class MessageErrorDetail(serializers.Serializer):
    type = serializers.CharField()
    message = serializers.CharField()
    code = serializers.CharField()
    param = serializers.CharField(allow_null=True, help_text="The dotted path of the field at fault.")


class MessageError(serializers.Serializer):
    type = serializers.ChoiceField(choices=["error"])
    error = MessageErrorDetail()
    request_id = serializers.CharField(allow_null=True)


class CacheCreation(serializers.Serializer):
    ephemeral_5m_input_tokens = serializers.IntegerField()
    ephemeral_1h_input_tokens = serializers.IntegerField()


class OutputTokens(serializers.Serializer):
    thinking_tokens = serializers.IntegerField()


class MessageUsage(serializers.Serializer):
    input_tokens = serializers.IntegerField(help_text="Those that were not in the cache.")
    cache_creation_input_tokens = serializers.IntegerField(help_text="Always 0.")
    cache_read_input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    output_tokens_details = OutputTokens()
    cache_creation = CacheCreation()
    service_tier = serializers.ChoiceField(choices=["standard", "priority"])


class MessageBody(serializers.Serializer):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=["message"])
    role = serializers.ChoiceField(choices=["assistant"])
    model = serializers.CharField()
    content = shaped({"type": "array", "items": BLOCK})
    stop_reason = serializers.ChoiceField(
        choices=["end_turn", "max_tokens", "stop_sequence", "tool_use"], allow_null=True
    )
    stop_sequence = serializers.CharField(allow_null=True)
    usage = MessageUsage()
    diagnostics = shaped({"type": "object"}, "Where it was asked for.", required=False)


class TokenCountBody(serializers.Serializer):
    input_tokens = serializers.IntegerField()


class MessageEvent(serializers.Serializer):
    type = serializers.ChoiceField(
        choices=[
            *(
                "message_start",
                "ping",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ),
            "error",
        ]
    )


ERRORS = {status: OpenApiResponse(MessageError) for status in (400, 401, 402, 403, 404, 408, 413, 429, 500, 503)}
STREAM = OpenApiResponse(
    MessageEvent, description="With stream: true, server-sent events: one of these in each, named as its type."
)


class MessagesRoute(APIView):
    @extend_schema(
        operation_id="create_message",
        summary="Create a message",
        request=MessagesRequest,
        responses={(200, "application/json"): MessageBody, (200, "text/event-stream"): STREAM, **ERRORS},
        tags=["messages"],
    )
    def post(self, request: HttpRequest) -> None:
        """Answer a conversation in the shape of Anthropic's Messages API."""


class CountTokensRoute(APIView):
    @extend_schema(
        operation_id="count_message_tokens",
        summary="Count the tokens of a message",
        request=CountTokensRequest,
        responses={200: TokenCountBody, **ERRORS},
        tags=["messages"],
    )
    def post(self, request: HttpRequest) -> None:
        """How many tokens the prompt of such a message has."""


urlpatterns = [
    path("v1/messages", MessagesRoute.as_view()),
    path("v1/messages/count_tokens", CountTokensRoute.as_view()),
]
