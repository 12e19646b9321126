"""The routes around a prompt as the OpenAPI document describes them: text completions, tokens, rendered chats, embeddings, the version."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.openai.embedding_request import EmbeddingRequest
from chat.api.openai.token_requests import DetokenizeRequest, TokenizeRequest
from chat.api.openapi.answers import (
    PROMPT_LOGPROBS,
    PROMPT_LOGPROBS_HELP,
    STOP_REASON,
    STOP_REASON_HELP,
    TOKEN_IDS,
    ErrorBody,
    UsageBody,
    shaped,
)
from chat.api.request.schema import TIERS, ChatCompletionRequest
from chat.api.request.text_schema import CompletionRequest

FINISH_REASONS = ("stop", "length", "repetition")
ERRORS = (400, 401, 402, 403, 404, 408, 413, 429, 500, 503)
NUMBER_OR_NULL = {"type": ["number", "null"]}
ALTERNATIVES = {"type": ["object", "null"], "additionalProperties": {"type": "number"}}


class TextLogprobsBody(serializers.Serializer):
    tokens = serializers.ListField(child=serializers.CharField())
    token_logprobs = shaped({"type": "array", "items": NUMBER_OR_NULL}, "The first token of a prompt has null.")
    top_logprobs = shaped({"type": "array", "items": ALTERNATIVES}, "From text to log-probability.")
    text_offset = serializers.ListField(child=serializers.IntegerField(), help_text="Characters before each token.")


class TextChoiceBody(serializers.Serializer):
    index = serializers.IntegerField(help_text="Choice c of prompt p is p * n + c.")
    text = serializers.CharField()
    logprobs = TextLogprobsBody(allow_null=True)
    finish_reason = serializers.ChoiceField(choices=FINISH_REASONS)
    stop_reason = shaped(STOP_REASON, STOP_REASON_HELP)
    token_ids = shaped(TOKEN_IDS, "Where return_token_ids asks for them.", required=False)
    prompt_token_ids = shaped(TOKEN_IDS, "Where return_token_ids asks for them.", required=False)
    prompt_logprobs = shaped(PROMPT_LOGPROBS, PROMPT_LOGPROBS_HELP, required=False)


class TextChunkChoice(TextChoiceBody):
    finish_reason = shaped({"type": ["string", "null"], "enum": [*FINISH_REASONS, None]})
    stop_reason = shaped(STOP_REASON, STOP_REASON_HELP + " On the last chunk of a choice.", required=False)


class TextCompletion(serializers.Serializer):
    id = serializers.CharField(help_text="cmpl- and the request id.")
    object = serializers.ChoiceField(choices=["text_completion"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    model = serializers.CharField()
    system_fingerprint = serializers.CharField()
    service_tier = serializers.ChoiceField(
        choices=TIERS, required=False, help_text="The tier used, for requests that sent one."
    )
    choices = TextChoiceBody(many=True)
    usage = UsageBody()


class TextCompletionChunk(TextCompletion):
    """One data frame of a stream."""

    choices = TextChunkChoice(many=True)
    usage = UsageBody(allow_null=True, required=False)


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
