"""The routes around a prompt as the OpenAPI document describes them: text completions, tokens, rendered chats, embeddings, the version."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.openai.embeddings import EmbeddingRequest
from chat.api.openai.tokens import DetokenizeRequest, TokenizeRequest
from chat.api.openapi.answers import (
    ErrorBody,
    TextCompletion,
    TextCompletionChunk,
    shaped,
)
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.text_schema import CompletionRequest

ERRORS = (400, 401, 402, 403, 404, 408, 413, 429, 500, 503)


class Tokens(serializers.Serializer):
    """Beside `content` only `tokens`, with `with_pieces` as objects of id and piece."""

    count = serializers.IntegerField(required=False)
    max_model_len = serializers.IntegerField(required=False)
    tokens = shaped({"type": "array", "items": {"type": ["integer", "object"]}})
    token_strs = shaped({"type": ["array", "null"], "items": {"type": "string"}}, required=False)


class DetokenizedText(serializers.Serializer):
    prompt = serializers.CharField()
    content = serializers.CharField(help_text="The same.")


class RenderedChat(serializers.Serializer):
    object = serializers.ChoiceField(choices=["chat.completion.prompt"])
    model = serializers.CharField()
    prompt = serializers.CharField()
    token_ids = serializers.ListField(child=serializers.IntegerField())
    num_tokens = serializers.IntegerField()
    max_model_len = serializers.IntegerField()
    sampling_params = shaped({"type": "object", "additionalProperties": True}, "What would be used, defaults included.")


class EmbeddingUsage(serializers.Serializer):
    prompt_tokens = serializers.IntegerField()
    total_tokens = serializers.IntegerField()


class Embedding(serializers.Serializer):
    object = serializers.ChoiceField(choices=["embedding"])
    index = serializers.IntegerField()
    embedding = shaped(
        {"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}, "Numbers, or base64."
    )


class EmbeddingList(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    data = Embedding(many=True)
    model = serializers.CharField()
    usage = EmbeddingUsage()


class Version(serializers.Serializer):
    version = serializers.CharField()


STREAM = OpenApiResponse(
    TextCompletionChunk, description="With stream: true, server-sent events: one of these in each, then [DONE]."
)


def _answers(answer: type[serializers.Serializer]) -> dict[Any, Any]:
    return {(200, "application/json"): answer, **{status: OpenApiResponse(ErrorBody) for status in ERRORS}}


class TextCompletionRoute(APIView):
    @extend_schema(
        operation_id="create_completion",
        summary="Go on with a text",
        request=CompletionRequest,
        responses={**_answers(TextCompletion), (200, "text/event-stream"): STREAM},
        tags=["prompts"],
    )
    def post(self, request: HttpRequest) -> None:
        """A text goes on, without a chat and without a template."""


class TokenizeRoute(APIView):
    @extend_schema(
        operation_id="tokenize",
        summary="Text to tokens",
        request=TokenizeRequest,
        responses=_answers(Tokens),
        tags=["prompts"],
    )
    def post(self, request: HttpRequest) -> None:
        """Count and split a text, or a conversation in `messages` with the fields that make its prompt."""


class DetokenizeRoute(APIView):
    @extend_schema(
        operation_id="detokenize",
        summary="Tokens to text",
        request=DetokenizeRequest,
        responses=_answers(DetokenizedText),
        tags=["prompts"],
    )
    def post(self, request: HttpRequest) -> None:
        """What token ids spell."""


class RenderRoute(APIView):
    @extend_schema(
        operation_id="render_chat_completion",
        summary="The prompt of a chat",
        request=ChatCompletionRequest,
        responses=_answers(RenderedChat),
        tags=["prompts"],
    )
    def post(self, request: HttpRequest) -> None:
        """What the model would read, and how an answer would be drawn."""


class EmbeddingsRoute(APIView):
    @extend_schema(
        operation_id="create_embeddings",
        summary="Text to vectors",
        request=EmbeddingRequest,
        responses=_answers(EmbeddingList),
        tags=["prompts"],
    )
    def post(self, request: HttpRequest) -> None:
        """A vector of length 1 per input, made of the hidden states of the served model."""


class VersionRoute(APIView):
    @extend_schema(operation_id="version", summary="Version", auth=[], responses={200: Version}, tags=["health"])
    def get(self, request: HttpRequest) -> None:
        """Which Lightcone answers."""


urlpatterns = [
    path("v1/completions", TextCompletionRoute.as_view()),
    path("v1/chat/completions/render", RenderRoute.as_view()),
    path("v1/embeddings", EmbeddingsRoute.as_view()),
    path("tokenize", TokenizeRoute.as_view()),
    path("detokenize", DetokenizeRoute.as_view()),
    path("version", VersionRoute.as_view()),
]
