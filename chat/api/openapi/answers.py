"""The bodies that API routes answer with, as serializers that are only described, never run; `document.py` puts them into the document.

What is written is in the dialects' writers; a test holds answers and chunks against these.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from chat.api.request.schema import TIERS

FINISH_REASONS = ("stop", "length", "tool_calls", "function_call", "repetition")
SCORE = {
    "type": "object",
    "properties": {"logprob": {"type": "number"}, "rank": {"type": "integer"}, "decoded_token": {"type": "string"}},
    "required": ["logprob", "rank", "decoded_token"],
}


def shaped(schema: dict[str, Any], help_text: str = "", **options: Any) -> serializers.Field:
    """A field with a JSON Schema that serializers have no word for."""

    @extend_schema_field(schema)
    class Shaped(serializers.JSONField):
        pass

    return Shaped(help_text=help_text, **options)


TEXT_FINISH_REASONS = ("stop", "length", "repetition")
NUMBER_OR_NULL = {"type": ["number", "null"]}
ALTERNATIVES = {"type": ["object", "null"], "additionalProperties": {"type": "number"}}
ITEMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"type": {"type": "string"}}, "additionalProperties": True},
}
PAGING = [
    OpenApiParameter("limit", int, description="1 to 100, 20 where absent."),
    OpenApiParameter("after", str, description="The id of the last entry of the page before."),
    OpenApiParameter("order", str, enum=["asc", "desc"]),
]


class ErrorDetail(serializers.Serializer):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True, help_text="The dotted path of the field at fault.")
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


class CalledFunction(serializers.Serializer):
    name = serializers.CharField()
    arguments = serializers.CharField(help_text="JSON text; partial where the token limit cut it.")


class ToolCallBody(serializers.Serializer):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=["function"])
    function = CalledFunction()


class AnswerMessage(serializers.Serializer):
    role = serializers.CharField()
    content = serializers.CharField(allow_null=True)
    refusal = serializers.CharField(allow_null=True)
    annotations = shaped({"type": "null"})
    audio = shaped({"type": "null"})
    function_call = CalledFunction(allow_null=True, help_text="Only for requests with `functions`.")
    reasoning = serializers.CharField(allow_null=True)
    reasoning_content = serializers.CharField(allow_null=True, help_text="The same as reasoning.")
    tool_calls = ToolCallBody(many=True, required=False)


STOP_REASON = {"type": ["string", "integer", "null"]}
STOP_REASON_HELP = "The stop string or stop token id, or null."


class AnswerChoice(serializers.Serializer):
    index = serializers.IntegerField()
    message = AnswerMessage()
    logprobs = LogprobsBody(allow_null=True)
    finish_reason = serializers.ChoiceField(choices=FINISH_REASONS)
    stop_reason = shaped(STOP_REASON, STOP_REASON_HELP)
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


PROMPT_LOGPROBS = {
    "type": ["array", "null"],
    "items": {"oneOf": [{"type": "null"}, {"type": "object", "additionalProperties": SCORE}]},
}
PROMPT_LOGPROBS_HELP = "Per prompt token, from its id and those of the alternatives; the first is null."
TOKEN_IDS = {"type": ["array", "null"], "items": {"type": "integer"}}


class ChatCompletion(serializers.Serializer):
    id = serializers.CharField(help_text="chatcmpl- and the request id.")
    object = serializers.ChoiceField(choices=["chat.completion"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    model = serializers.CharField()
    choices = AnswerChoice(many=True)
    system_fingerprint = serializers.CharField()
    usage = UsageBody()
    prompt_logprobs = shaped(PROMPT_LOGPROBS, PROMPT_LOGPROBS_HELP)
    prompt_token_ids = shaped(TOKEN_IDS, "Where return_token_ids asks for them.")
    kv_transfer_params = shaped({"type": "null"})
    prompt_text = serializers.CharField(required=False, help_text="Where return_prompt_text asks for it.")
    service_tier = serializers.ChoiceField(
        choices=TIERS, required=False, help_text="The tier used, for requests that sent one."
    )


class FunctionDelta(serializers.Serializer):
    name = serializers.CharField(required=False)
    arguments = serializers.CharField(required=False)


class ToolCallChunk(serializers.Serializer):
    index = serializers.IntegerField()
    id = serializers.CharField(required=False)
    type = serializers.ChoiceField(choices=["function"], required=False)
    function = FunctionDelta()


class ChunkDelta(serializers.Serializer):
    role = serializers.CharField(required=False)
    content = serializers.CharField(required=False)
    reasoning = serializers.CharField(required=False)
    reasoning_content = serializers.CharField(required=False)
    tool_calls = ToolCallChunk(many=True, required=False)
    function_call = FunctionDelta(required=False)


class ChunkChoice(serializers.Serializer):
    index = serializers.IntegerField()
    delta = ChunkDelta()
    logprobs = LogprobsBody(allow_null=True)
    finish_reason = shaped({"type": ["string", "null"], "enum": [*FINISH_REASONS, None]})
    stop_reason = shaped(STOP_REASON, STOP_REASON_HELP + " On the last chunk of a choice.", required=False)
    token_ids = shaped(TOKEN_IDS, required=False)


class ChatCompletionChunk(serializers.Serializer):
    """One data frame of a stream. What concerns the prompt is on the first chunk only."""

    id = serializers.CharField(help_text="chatcmpl- and the request id.")
    object = serializers.ChoiceField(choices=["chat.completion.chunk"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    model = serializers.CharField()
    choices = ChunkChoice(many=True)
    system_fingerprint = serializers.CharField()
    usage = UsageBody(allow_null=True, required=False)
    prompt_logprobs = shaped(PROMPT_LOGPROBS, PROMPT_LOGPROBS_HELP, required=False)
    prompt_token_ids = shaped(TOKEN_IDS, required=False)
    prompt_text = serializers.CharField(required=False)
    service_tier = serializers.ChoiceField(choices=TIERS, required=False)


class DefaultParameters(serializers.Serializer):
    temperature = serializers.FloatField()
    top_p = serializers.FloatField()
    top_k = serializers.IntegerField()
    min_p = serializers.FloatField()
    presence_penalty = serializers.FloatField()
    frequency_penalty = serializers.FloatField()
    repetition_penalty = serializers.FloatField()
    max_completion_tokens = serializers.IntegerField(allow_null=True, help_text="null: the rest of the context.")


MODEL_STATES = ["unloaded", "loading", "ready", "draining", "failed"]


class Model(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["model"])
    created = serializers.IntegerField(help_text="Unix seconds.")
    owned_by = serializers.CharField()
    state = serializers.ChoiceField(choices=MODEL_STATES)
    state_reason = serializers.CharField(
        required=False, help_text="Progress, or why it failed; for keys with the right usage_read."
    )
    max_model_len = serializers.IntegerField(
        allow_null=True, help_text="Context in tokens; null before the model was first loaded."
    )
    default_parameters = DefaultParameters(help_text="What a request that leaves these fields out is computed with.")


class ModelList(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    data = Model(many=True)


class Status(serializers.Serializer):
    status = serializers.CharField()


class TextLogprobsBody(serializers.Serializer):
    tokens = serializers.ListField(child=serializers.CharField())
    token_logprobs = shaped({"type": "array", "items": NUMBER_OR_NULL}, "The first token of a prompt has null.")
    top_logprobs = shaped({"type": "array", "items": ALTERNATIVES}, "From text to log-probability.")
    text_offset = serializers.ListField(child=serializers.IntegerField(), help_text="Characters before each token.")


class TextChoiceBody(serializers.Serializer):
    index = serializers.IntegerField(help_text="Choice c of prompt p is p * n + c.")
    text = serializers.CharField()
    logprobs = TextLogprobsBody(allow_null=True)
    finish_reason = serializers.ChoiceField(choices=TEXT_FINISH_REASONS)
    stop_reason = shaped(STOP_REASON, STOP_REASON_HELP)
    token_ids = shaped(TOKEN_IDS, "Where return_token_ids asks for them.", required=False)
    prompt_token_ids = shaped(TOKEN_IDS, "Where return_token_ids asks for them.", required=False)
    prompt_logprobs = shaped(PROMPT_LOGPROBS, PROMPT_LOGPROBS_HELP, required=False)


class TextChunkChoice(TextChoiceBody):
    finish_reason = shaped({"type": ["string", "null"], "enum": [*TEXT_FINISH_REASONS, None]})
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


class ItemList(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    data = shaped(ITEMS)
    first_id = serializers.CharField(allow_null=True)
    last_id = serializers.CharField(allow_null=True)
    has_more = serializers.BooleanField()
