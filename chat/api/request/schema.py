"""The request schema: every field of `POST /v1/chat/completions`, in the order of the checks.

A field checks its own type and range, without a database or a model; the engine checks what needs the model or its
vocabulary. Meaning of every field: docs/api/lightcone.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.fields import empty

from chat.api.request.constraints import (
    Choices,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
    filled_read,
    whitespace_read,
)
from chat.api.request.fields import (
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    RequestField,
    Text,
    bad_value,
    field_read,
    refuse,
)
from chat.api.request.objects import (
    TOKEN_ID,
    ExtraArguments,
    LogitBias,
    MediaOptions,
    Messages,
    Metadata,
    Modalities,
    Prediction,
    Processor,
    RepetitionDetection,
    Stop,
    StreamOptions,
    TemplateVariables,
    TransferParams,
    Unsupported,
    bad_word_read,
    document_read,
    token_id_read,
)
from chat.api.request.parsed import DrawFields
from chat.api.request.tools import Function, FunctionCallField, ToolChoiceField, ToolObject, Tools

LIMITS = settings.LIGHTCONE_LIMITS
PROCESSOR = Processor(nullable=False)
MAX_TOKENS = min(LIMITS.max_output_tokens or LIMITS.max_choice_tokens, LIMITS.max_choice_tokens)
REQUEST_ID = f"[A-Za-z0-9._:-]{{1,{LIMITS.max_id_chars}}}"
SAMPLING_DEFAULTS = (*DrawFields.__dataclass_fields__, "max_completion_tokens")
SMALLEST_VOCABULARY = 256
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "flex", "scale", "priority")


class Alternatives(Integer):
    """A number of likely tokens per position. -1 is the whole vocabulary, whose size counts against the limit."""

    def __init__(self, help_text: str = "", **kwargs: Any) -> None:
        super().__init__(help_text, minimum=-1, maximum=LIMITS.max_logprobs, accepts_strings=False, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        number: int = super().to_internal_value(data)
        if number == -1 and LIMITS.max_logprobs < SMALLEST_VOCABULARY:
            message = f"must be at most {LIMITS.max_logprobs}; -1 asks for the whole vocabulary, which is more"
            raise refuse("invalid_value", message)
        return number


class RequestBody(serializers.Serializer):
    """A body of RequestFields. Absent ones get their defaults at once, which is faster than DRF's way."""

    def run_validation(self, data: Any = empty) -> dict[str, Any]:
        values, errors = dict(self.absent), {}
        for name, field in self._by_name.items():
            if name in data or field.required:
                try:
                    values[name] = field.run_validation(field.get_value(data))
                except ValidationError as error:
                    errors[name] = error.detail
        if errors:
            raise ValidationError(errors)
        return values

    @cached_property
    def absent(self) -> dict[str, Any]:
        return {name: field.default_value for name, field in self.fields.items()}

    @cached_property
    def _by_name(self) -> dict[str, RequestField]:
        return dict(self.fields)


class ChatCompletionRequest(RequestBody):
    """The body of a chat completion. Unknown fields are ignored and named; known ones take effect or are refused."""

    messages = Messages(help_text="The conversation so far.")
    model = Text("Served name or alias; absent or empty: the default.", max_chars=LIMITS.max_label_chars, is_label=True)
    frequency_penalty = Number(
        "Subtracted from a token's logit once per occurrence in the answer so far.", minimum=-2, maximum=2
    )
    logit_bias = LogitBias("Token ids, as strings, and what is added to their logits, at most 100 either way.")
    logprobs = Boolean("Return the log-probability of every generated token.", default=False)
    top_logprobs = Alternatives("Alternatives per token; needs logprobs: true. -1: the whole vocabulary.", default=0)
    max_tokens = Integer(
        "Limit of generated tokens; used when max_completion_tokens is absent. Deprecated.",
        minimum=1,
        maximum=MAX_TOKENS,
    )
    max_completion_tokens = Integer(
        "Limit of generated tokens of each choice. Absent: the rest of the context.", minimum=1, maximum=MAX_TOKENS
    )
    n = Integer("Number of independent answers.", minimum=1, maximum=LIMITS.max_n, default=1)
    presence_penalty = Number("Subtracted from the logit of each token that the answer has.", minimum=-2, maximum=2)
    response_format = ResponseFormat("text, json_object, json_schema or structural_tag: what the content must be.")
    seed = Integer("Makes the draw repeatable; answer i uses seed + i. -1 or absent: a random one.")
    stop = Stop("Strings that end the answer; the text is cut before them.")
    stream = Boolean("Send the answer as server-sent events.", default=False)
    stream_options = StreamOptions("Only with stream: true.")
    temperature = Number("0 is greedy; higher is more random.", minimum=0, maximum=2)
    top_p = Number("Draw from the smallest set of tokens whose probability reaches this.", above=0, maximum=1)
    tools = Tools(ToolObject(nullable=False), "function.name", help_text="Functions that the model may call.")
    tool_choice = ToolChoiceField("none, auto, required, one function, or some of them. Absent: auto with tools.")
    reasoning_effort = Text("For the template, as enable_thinking is; none switches thinking off.", choices=EFFORTS)
    include_reasoning = Boolean("False: reasoning is left out of the answer.", default=True, nullable=False)
    parallel_tool_calls = Boolean("False: at most one call.", default=True)
    user = Text("For the usage record; never affects the answer.", max_chars=LIMITS.max_label_chars, is_label=True)
    use_beam_search = Boolean("Deterministic beam search of width n.", default=False, nullable=False)
    top_k = Integer("Draw from the k most likely tokens; 0 or -1: off.", minimum=-1)
    min_p = Number("Drop tokens less likely than this share of the most likely one.", minimum=0, maximum=1)
    repetition_penalty = Number("Divides the logits of tokens that the prompt or the answer already has.", above=0)
    length_penalty = Number("Beam search: scores are divided by length to this power.", default=1.0, nullable=False)
    stop_token_ids = Array(
        token_id_read,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_stop_token_ids,
        help_text="Token ids that end the answer; their text is dropped.",
    )
    include_stop_str_in_output = Boolean("Keep the stop string in the text.", default=False, nullable=False)
    ignore_eos = Boolean("Go on after the model's end token.", default=False, nullable=False)
    min_tokens = Integer("Nothing ends the answer before it has so many tokens.", minimum=0, default=0, nullable=False)
    skip_special_tokens = Boolean("Leave special tokens out of the text.", default=True, nullable=False)
    spaces_between_special_tokens = Boolean(
        "False: adjacent special tokens are joined without a space, where they are shown.", default=True, nullable=False
    )
    truncate_prompt_tokens = Integer("Keep only so many prompt tokens; -1: context less one.", minimum=-1, but_not=0)
    prompt_logprobs = Alternatives("Log-probabilities of the prompt, with this many alternatives.")
    allowed_token_ids = Array(
        token_id_read,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_allowed_token_ids,
        if_empty="must have at least one token id; leave it out to allow all",
        help_text="Only these tokens may be generated.",
    )
    bad_words = Array(
        bad_word_read,
        item_schema={"type": "string", "minLength": 1, "maxLength": LIMITS.max_bad_word_chars},
        max_items=LIMITS.max_bad_words,
        nullable=False,
        help_text="Words that must not be generated.",
    )
    echo = Boolean("Begin each choice with the last message, if it has the same role.", default=False, nullable=False)
    add_generation_prompt = Boolean("End the prompt with the assistant's header.", default=True, nullable=False)
    continue_final_message = Boolean("Go on with the last message; do not answer it.", default=False, nullable=False)
    add_special_tokens = Boolean("Let the tokenizer add its tokens to the template's.", default=False, nullable=False)
    documents = Array(
        document_read,
        item_schema={"type": "object", "additionalProperties": {"type": "string"}},
        max_items=LIMITS.max_documents,
        help_text="Documents for templates that use them.",
    )
    chat_template = Text(
        "Jinja source in place of the model's; the key needs a right.", max_bytes=LIMITS.max_template_bytes
    )
    chat_template_kwargs = TemplateVariables("Variables for the template.")
    mm_processor_kwargs = Object("Options of the media processor; the key needs a right.")
    structured_outputs = StructuredOutputs("One constraint on the content, and how its JSON is written.")
    priority = Integer(
        "Lower is served first; a key has a lowest value it may ask for, normally 0.", default=0, nullable=False
    )
    request_id = Text("Becomes the answer's id; the header X-Request-Id wins.", pattern=REQUEST_ID, nullable=False)
    logits_processors = Array(
        PROCESSOR.run_validation,
        item_schema=PROCESSOR.schema_object(),
        max_items=LIMITS.max_logits_processors,
        help_text="Registered logits processors, applied in order; the key needs a right.",
    )
    return_tokens_as_token_ids = Boolean("Tokens in log-probabilities read token_id:N.", default=False)
    return_token_ids = Boolean("Return the ids of prompt and answer.", default=False)
    cache_salt = Text("Requests with different salts share no cached prefix.", max_chars=LIMITS.max_id_chars)
    kv_transfer_params = TransferParams("Needs a KV connector, which this server does not have.")
    vllm_xargs = ExtraArguments("Values that active logits processors may read.")

    thinking_token_budget = Integer(
        "Reasoning ends after this many tokens; -1: no limit.", minimum=-1, accepts_integers_only=True
    )
    stream_interval = Integer("Tokens per chunk of a stream.", minimum=1)
    logprob_token_ids = Array(
        token_id_read,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_logprob_token_ids,
        help_text="Log-probabilities of these ids instead of the most likely ones; needs logprobs: true.",
    )
    return_prompt_text = Boolean("Return the rendered prompt.", default=False)
    truncation_side = Text("Which end truncate_prompt_tokens cuts off.", choices=("left", "right"), default="left")
    repetition_detection = RepetitionDetection("End an answer that repeats itself.")
    media_io_kwargs = MediaOptions("Options of media decoding by modality; the key needs a right.")
    guided_json = SchemaOrText("Older name of structured_outputs.json.")
    guided_regex = Text(
        "Older name of structured_outputs.regex.", max_bytes=LIMITS.max_regex_bytes, is_label=True, read=filled_read
    )
    guided_choice = Choices("Older name of structured_outputs.choice.")
    guided_grammar = Text(
        "Older name of structured_outputs.grammar.", max_bytes=LIMITS.max_grammar_bytes, is_filled=True
    )
    guided_whitespace_pattern = Text(
        "Older name of structured_outputs.whitespace_pattern.", max_bytes=LIMITS.max_regex_bytes, read=whitespace_read
    )

    store = Boolean("Keep the answer, to be fetched under GET /v1/chat/completions.")
    metadata = Metadata("Labels kept with the usage record.")
    service_tier = Text("flex runs later, priority earlier if the key may; the tier used comes back.", choices=TIERS)
    prediction = Prediction("Text that the answer is expected to repeat; never changes it.")
    modalities = Modalities("Text only.")
    audio = Object("Accepted, without effect: answers are text.")
    functions = Tools(Function(nullable=False), "name", help_text="Deprecated form of tools.")
    function_call = FunctionCallField("Deprecated form of tool_choice.")
    verbosity = Text("Given to the template.", choices=("low", "medium", "high"))
    web_search_options = Unsupported(
        "is not supported: the server cannot search the web; leave it out", help_text="Refused."
    )
    prompt_cache_key = Text("Requests with the same key are scheduled together.", max_chars=256, is_label=True)
    prompt_cache_retention = Text("Accepted, without effect.")
    safety_identifier = Text("Treated like user.", max_chars=256, is_label=True)


class SharingRequest(RequestBody):
    """A body with fields of its own, and the fields of a chat completion that `shared` names."""

    shared: tuple[str, ...] = ()

    def get_fields(self) -> dict[str, serializers.Field]:
        chat = ChatCompletionRequest().get_fields()
        return {**super().get_fields(), **{name: chat[name] for name in self.shared}}


CHAT_SCHEMA = ChatCompletionRequest()
FIELD_NAMES = frozenset(CHAT_SCHEMA.fields)
"""The names of all fields; others are ignored."""


def sampling_defaults_read(defaults: dict[str, Any]) -> dict[str, Any]:
    """Check a model's values for fields that requests leave out. Raises ApiError for the first bad one.

    null stands for no value: the default of the model's makers is then not used either.
    """
    values = {}
    for name, value in defaults.items():
        if name not in SAMPLING_DEFAULTS:
            raise bad_value(name, f"cannot have a default; {', '.join(SAMPLING_DEFAULTS)} can")
        values[name] = field_read(name, CHAT_SCHEMA.fields[name].run_validation, value)
    return values
