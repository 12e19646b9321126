"""The request schema: every field of `POST /v1/chat/completions` with its type, range and default, in the order of the
checks.

A field checks its own type and range, without a database or a model. cross_field.py has the rules between fields,
messages.py those of messages, rights.py those of keys. The engine checks what needs the model or its vocabulary.
Meaning of every field: docs/api/lightcone.md.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import (
    Choices,
    Expression,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
    Whitespace,
)
from chat.api.request.fields import (
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    RequestBody,
    Text,
    field_error,
    refuse,
)
from chat.api.request.objects import (
    TOKEN_ID,
    AllowedTokens,
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
from chat.errors import ApiError

LIMITS = settings.LIGHTCONE_LIMITS
MAX_TOKENS = min(LIMITS.max_output_tokens or LIMITS.max_choice_tokens, LIMITS.max_choice_tokens)
REQUEST_ID = f"[A-Za-z0-9._:-]{{1,{LIMITS.max_id_chars}}}"
SAMPLING_DEFAULTS = (*DrawFields.__dataclass_fields__, "max_completion_tokens")
SMALLEST_VOCABULARY = 256
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "flex", "scale", "priority")


class Alternatives(Integer):
    """A number of likely tokens per position. -1 is the whole vocabulary, which counts as its size against the
    limit.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(minimum=-1, maximum=LIMITS.max_logprobs, accepts_strings=False, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        number: int = super().to_internal_value(data)
        if number == -1 and LIMITS.max_logprobs < SMALLEST_VOCABULARY:
            raise refuse(
                "invalid_value",
                f"must be at most {LIMITS.max_logprobs}; -1 asks for the whole vocabulary, which is more",
            )
        return number


class ChatCompletionRequest(RequestBody):
    """The body of a chat completion. Unknown fields are ignored and named; known ones have their effect or are
    refused.
    """

    messages = Messages(help_text="The conversation so far.")
    model = Text(
        max_chars=LIMITS.max_label_chars,
        is_label=True,
        help_text="A served name or alias; absent or empty: the default.",
    )
    frequency_penalty = Number(
        minimum=-2, maximum=2, help_text="Subtracted from a token's logit once per occurrence in the answer so far."
    )
    logit_bias = LogitBias(
        help_text="Token ids, as strings, and what is added to their logits, at most 100 either way."
    )
    logprobs = Boolean(default=False, help_text="Return the log-probability of every generated token.")
    top_logprobs = Alternatives(
        default=0, help_text="Alternatives per token; needs logprobs: true. -1: the whole vocabulary."
    )
    max_tokens = Integer(
        minimum=1,
        maximum=MAX_TOKENS,
        help_text="Limit of generated tokens; used when max_completion_tokens is absent. Deprecated.",
    )
    max_completion_tokens = Integer(
        minimum=1,
        maximum=MAX_TOKENS,
        help_text="Limit of generated tokens of each choice. Absent: the rest of the context.",
    )
    n = Integer(minimum=1, maximum=LIMITS.max_n, default=1, help_text="Number of independent answers.")
    presence_penalty = Number(
        minimum=-2, maximum=2, help_text="Subtracted from the logit of every token that the answer already has."
    )
    response_format = ResponseFormat(
        help_text="text, json_object, json_schema or structural_tag: what the content must be."
    )
    seed = Integer(help_text="Makes the draw repeatable; answer i uses seed + i. -1 or absent: a random one.")
    stop = Stop(help_text="Strings that end the answer; the text is cut before them.")
    stream = Boolean(default=False, help_text="Send the answer as server-sent events.")
    stream_options = StreamOptions(help_text="Only with stream: true.")
    temperature = Number(minimum=0, maximum=2, help_text="0 is greedy; higher is more random.")
    top_p = Number(above=0, maximum=1, help_text="Draw from the smallest set of tokens whose probability reaches this.")
    tools = Tools(ToolObject(nullable=False), "function.name", help_text="Functions that the model may call.")
    tool_choice = ToolChoiceField(
        help_text="none, auto, required, one function, or some of them. Absent: auto with tools."
    )
    reasoning_effort = Text(
        choices=EFFORTS, help_text="Given to the template, as enable_thinking is; none switches thinking off."
    )
    include_reasoning = Boolean(default=True, nullable=False, help_text="False: reasoning is left out of the answer.")
    parallel_tool_calls = Boolean(default=True, help_text="False: at most one call.")
    user = Text(
        max_chars=LIMITS.max_label_chars,
        is_label=True,
        help_text="A label for the usage record; never affects the answer.",
    )
    use_beam_search = Boolean(default=False, nullable=False, help_text="Deterministic beam search of width n.")
    top_k = Integer(minimum=-1, help_text="Draw from the k most likely tokens; 0 or -1: off.")
    min_p = Number(minimum=0, maximum=1, help_text="Drop tokens less likely than this share of the most likely one.")
    repetition_penalty = Number(
        above=0, help_text="Divides the logits of tokens that the prompt or the answer already has."
    )
    length_penalty = Number(
        default=1.0, nullable=False, help_text="Beam search: scores are divided by length to this power."
    )
    stop_token_ids = Array(
        token_id_read,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_stop_token_ids,
        help_text="Token ids that end the answer; their text is dropped.",
    )
    include_stop_str_in_output = Boolean(default=False, nullable=False, help_text="Keep the stop string in the text.")
    ignore_eos = Boolean(default=False, nullable=False, help_text="Go on after the model's end token.")
    min_tokens = Integer(
        minimum=0, default=0, nullable=False, help_text="Nothing ends the answer before it has this many tokens."
    )
    skip_special_tokens = Boolean(default=True, nullable=False, help_text="Leave special tokens out of the text.")
    spaces_between_special_tokens = Boolean(
        default=True,
        nullable=False,
        help_text="False: adjacent special tokens are joined without a space, where they are shown.",
    )
    truncate_prompt_tokens = Integer(
        minimum=-1, but_not=0, help_text="Keep only this many prompt tokens; -1: the context less one."
    )
    prompt_logprobs = Alternatives(help_text="Log-probabilities of the prompt, with this many alternatives.")
    allowed_token_ids = AllowedTokens(help_text="Only these tokens may be generated.")
    bad_words = Array(
        bad_word_read,
        item_schema={"type": "string", "minLength": 1, "maxLength": LIMITS.max_bad_word_chars},
        max_items=LIMITS.max_bad_words,
        nullable=False,
        help_text="Words that must not be generated.",
    )
    echo = Boolean(
        default=False, nullable=False, help_text="Begin each choice with the last message, if it has the same role."
    )
    add_generation_prompt = Boolean(
        default=True, nullable=False, help_text="End the prompt with the header of the assistant's turn."
    )
    continue_final_message = Boolean(
        default=False, nullable=False, help_text="Go on with the last message instead of answering it."
    )
    add_special_tokens = Boolean(
        default=False, nullable=False, help_text="Let the tokenizer add its own tokens to the template's."
    )
    documents = Array(
        document_read,
        item_schema={"type": "object", "additionalProperties": {"type": "string"}},
        max_items=LIMITS.max_documents,
        help_text="Documents for templates that use them.",
    )
    chat_template = Text(
        max_bytes=LIMITS.max_template_bytes, help_text="Jinja source in place of the model's; the key needs a right."
    )
    chat_template_kwargs = TemplateVariables(help_text="Variables for the template.")
    mm_processor_kwargs = Object(help_text="Options of the media processor; the key needs a right.")
    structured_outputs = StructuredOutputs(help_text="One constraint on the content, and how its JSON is written.")
    priority = Integer(
        default=0,
        nullable=False,
        help_text="Lower is served first; a key has a lowest value it may ask for, normally 0.",
    )
    request_id = Text(
        pattern=REQUEST_ID, nullable=False, help_text="Becomes the answer's id; the header X-Request-Id wins."
    )
    logits_processors = Array(
        Processor(nullable=False).run_validation,
        item_schema=Processor(nullable=False).schema_object(),
        max_items=LIMITS.max_logits_processors,
        help_text="Registered logits processors, applied in order; the key needs a right.",
    )
    return_tokens_as_token_ids = Boolean(default=False, help_text="Tokens in log-probabilities read token_id:N.")
    return_token_ids = Boolean(default=False, help_text="Return the ids of prompt and answer.")
    cache_salt = Text(max_chars=LIMITS.max_id_chars, help_text="Requests with different salts share no cached prefix.")
    kv_transfer_params = TransferParams(help_text="Needs a KV connector, which this server does not have.")
    vllm_xargs = ExtraArguments(help_text="Values that active logits processors may read.")

    thinking_token_budget = Integer(
        minimum=-1, accepts_integers_only=True, help_text="Reasoning ends after this many tokens; -1: no limit."
    )
    stream_interval = Integer(minimum=1, help_text="Tokens per chunk of a stream.")
    logprob_token_ids = Array(
        token_id_read,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_logprob_token_ids,
        help_text="Log-probabilities of these ids instead of the most likely ones; needs logprobs: true.",
    )
    return_prompt_text = Boolean(default=False, help_text="Return the rendered prompt.")
    truncation_side = Text(
        choices=("left", "right"), default="left", help_text="Which end truncate_prompt_tokens cuts off."
    )
    repetition_detection = RepetitionDetection(help_text="End an answer that repeats itself.")
    media_io_kwargs = MediaOptions(help_text="Options of media decoding by modality; the key needs a right.")
    guided_json = SchemaOrText(help_text="Older name of structured_outputs.json.")
    guided_regex = Expression(
        max_bytes=LIMITS.max_regex_bytes, is_label=True, help_text="Older name of structured_outputs.regex."
    )
    guided_choice = Choices(help_text="Older name of structured_outputs.choice.")
    guided_grammar = Text(
        max_bytes=LIMITS.max_grammar_bytes, is_filled=True, help_text="Older name of structured_outputs.grammar."
    )
    guided_whitespace_pattern = Whitespace(
        max_bytes=LIMITS.max_regex_bytes, help_text="Older name of structured_outputs.whitespace_pattern."
    )

    store = Boolean(help_text="Keep the answer, to be fetched under GET /v1/chat/completions.")
    metadata = Metadata(help_text="Labels kept with the usage record.")
    service_tier = Text(
        choices=TIERS, help_text="flex runs later, priority earlier if the key may; the tier used comes back."
    )
    prediction = Prediction(help_text="Text that the answer is expected to repeat; never changes it.")
    modalities = Modalities(help_text="Text only.")
    audio = Object(help_text="Accepted, without effect: answers are text.")
    functions = Tools(Function(nullable=False), "name", help_text="Deprecated form of tools.")
    function_call = FunctionCallField(help_text="Deprecated form of tool_choice.")
    verbosity = Text(choices=("low", "medium", "high"), help_text="Given to the template.")
    web_search_options = Unsupported(
        "is not supported: the server cannot search the web; leave it out", help_text="Refused."
    )
    prompt_cache_key = Text(
        max_chars=256, is_label=True, help_text="Requests with the same key are scheduled together."
    )
    prompt_cache_retention = Text(help_text="Accepted, without effect.")
    safety_identifier = Text(max_chars=256, is_label=True, help_text="Treated like user.")


class SharingRequest(serializers.Serializer):
    """A body with fields of its own, and the fields of a chat completion that `shared` names."""

    shared: tuple[str, ...] = ()

    def get_fields(self) -> dict[str, serializers.Field]:
        chat = ChatCompletionRequest().get_fields()
        return {**super().get_fields(), **{name: chat[name] for name in self.shared}}


CHAT_SCHEMA = ChatCompletionRequest()
FIELD_NAMES = frozenset(CHAT_SCHEMA.fields)
"""The names of all fields; others are ignored."""


def sampling_defaults_read(defaults: dict[str, Any]) -> dict[str, Any]:
    """Check a model's values for fields that requests leave out.

    Raises ApiError for the first that no request could have.

    null stands for no value: the default of the model's makers is then not used either.
    """
    values = {}
    for name, value in defaults.items():
        if name not in SAMPLING_DEFAULTS:
            raise ApiError("invalid_value", f"{name} cannot have a default; {', '.join(SAMPLING_DEFAULTS)} can", name)
        try:
            values[name] = CHAT_SCHEMA.fields[name].run_validation(value)
        except ValidationError as error:
            raise field_error(name, error) from None
    return values
