"""The body of a text completion: its own fields, those shared with chats, and what they forbid each other.

Fields of a chat alone (`messages`, `tools`, …) are unknown here. Meaning of every field: docs/api/completions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.conf import settings

from chat.api.openapi.notation import TEXT, array
from chat.api.request.constraints import GUIDED
from chat.api.request.cross_field import cross_field_check, foreign_check
from chat.api.request.fields import Boolean, Integer, RequestField, Text, bad_value, echo, integer_read, read_at, refuse
from chat.api.request.objects import TOKEN_ID
from chat.api.request.parse import fields_read, together_check, unknown_names, values_parse
from chat.api.request.parsed import ParsedRequest, PromptsRequest
from chat.api.request.schema import MAX_TOKENS, Alternatives, SharingRequest
from engine.api import RawPrompt

LIMITS = settings.LIGHTCONE_LIMITS
FORMS = "a string, an array of strings, an array of token ids, or an array of such arrays"
TOKEN_IDS = {**array(TOKEN_ID), "minItems": 1}
USUAL_MAX_TOKENS = 16
MAX_REPEATED = 64
"""Choices times log-probabilities of each token of their prompt."""
SHARED = """
model frequency_penalty logit_bias n presence_penalty response_format seed stop stream
stream_options temperature top_p user use_beam_search top_k min_p repetition_penalty
length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs allowed_token_ids
bad_words structured_outputs priority request_id logits_processors return_tokens_as_token_ids
return_token_ids cache_salt kv_transfer_params vllm_xargs stream_interval logprob_token_ids
repetition_detection metadata service_tier prediction prompt_cache_key safety_identifier
"""


class Prompts(RequestField):
    """One prompt or several. Reads to RawPrompts, whose `param` is the field's name, or `name.3` in a list."""

    missing = f"is required: {FORMS}"

    def __init__(self, *, max_items: int, is_required: bool = True, **kwargs: Any) -> None:
        super().__init__(is_required=is_required, **kwargs)
        self.max_items = max_items
        several = {**array({"oneOf": [TEXT, TOKEN_IDS]}), "minItems": 1, "maxItems": max_items}
        self.json_schema = {"oneOf": [TEXT, TOKEN_IDS, several]}

    def to_internal_value(self, data: Any) -> list[RawPrompt]:
        name = str(self.field_name)
        if isinstance(data, str):
            return [RawPrompt(text=data, param=name)]
        if not isinstance(data, list):
            raise refuse("invalid_type", f"must be {FORMS}; got {echo(data)}")
        if not data:
            raise refuse("invalid_value", "must not be an empty array; send at least one prompt")
        if _is_number(data[0]):
            return [RawPrompt(token_ids=token_ids_read(data), param=name)]
        if len(data) > self.max_items:
            message = f"must have at most {self.max_items} items, got {len(data)}; send the rest in further requests"
            raise refuse("invalid_value", message)
        return [read_at(index, partial(_prompt, f"{name}.{index}"), item) for index, item in enumerate(data)]


class PromptEmbeds(RequestField):
    """Prompts of vectors, each base64. Reads to RawPrompts, like `Prompts`."""

    def __init__(self, help_text: str, *, max_items: int) -> None:
        super().__init__(help_text)
        self.max_items = max_items
        self.json_schema = {"oneOf": [TEXT, {**array(TEXT), "minItems": 1, "maxItems": max_items}]}

    def to_internal_value(self, data: Any) -> list[RawPrompt]:
        name = str(self.field_name)
        if isinstance(data, str):
            return [RawPrompt(embeds=data, param=name)]
        if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
            raise refuse("invalid_type", f"must be a base64 string or an array of such strings; got {echo(data)}")
        if not 0 < len(data) <= self.max_items:
            raise refuse("invalid_value", f"must have 1 to {self.max_items} items, got {len(data)}")
        return [RawPrompt(embeds=item, param=f"{name}.{index}") for index, item in enumerate(data)]


def _prompt(param: str, data: Any) -> RawPrompt:
    if isinstance(data, str):
        return RawPrompt(text=data, param=param)
    if not isinstance(data, list):
        raise refuse("invalid_type", f"must be a string or an array of token ids; got {echo(data)}")
    if not data:
        raise refuse("invalid_value", "must hold at least one token id")
    return RawPrompt(token_ids=token_ids_read(data), param=param)


def token_ids_read(data: list[Any]) -> tuple[int, ...]:
    """Return token ids, at least 0 each; fast if all are plain integers. Raises ValidationError."""
    if all(type(item) is int for item in data) and min(data, default=0) >= 0:
        return tuple(data)
    return tuple(read_at(index, _token_id, item) for index, item in enumerate(data))


def _token_id(value: Any) -> int:
    if not _is_number(value):
        raise refuse("invalid_type", f"must be a token id, an integer; got {echo(value)}")
    number = integer_read(value, accepts_strings=False)
    if number < 0:
        raise refuse("invalid_value", f"must be a token id, at least 0, got {number}")
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Logprobs(Alternatives):
    """Likely tokens per position; 0 asks for the chosen one alone, and false, as chats write it, for none."""

    def to_internal_value(self, data: Any) -> Any:
        return None if data is False else super().to_internal_value(data)


class CompletionRequest(SharingRequest):
    prompt = Prompts(
        max_items=LIMITS.max_prompts,
        is_required=False,
        help_text="One prompt or several, as text or as token ids. Required unless prompt_embeds is sent.",
    )
    prompt_embeds = PromptEmbeds(
        "Prompts as vectors, which come before those of `prompt`: base64 of a .npy file, or of a safetensors file with "
        "one tensor, of shape (tokens, width of the model). Needs the server's setting LIGHTCONE_EMBEDS and a right of "
        "the key.",
        max_items=LIMITS.max_prompts,
    )
    suffix = Text("What follows the answer: the model fills in the middle. Empty: none.")
    max_tokens = Integer(
        "Limit of generated tokens; 0 only with echo: the prompt alone.",
        minimum=0,
        maximum=MAX_TOKENS,
        default=USUAL_MAX_TOKENS,
    )
    echo = Boolean("Begin each text with its prompt, and its log-probabilities with the prompt's.", default=False)
    best_of = Integer(
        "Generate so many, and answer with the n of the best mean log-probability.", minimum=1, maximum=LIMITS.max_n
    )
    logprobs = Logprobs("Log-probabilities of each token and of this many alternatives.")
    add_special_tokens = Boolean(
        "Let the tokenizer add its own tokens to a text, as its begin token.", default=True, nullable=False
    )

    shared = (*SHARED.split(), *GUIDED)


SCHEMA = CompletionRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest(PromptsRequest):
    suffix: str | None = None
    has_chat_logprobs: bool = False
    """Log-probabilities have the shape of chats."""

    def of(self, index: int) -> ParsedRequest:
        """Return the request of the run of prompt number `index`, with what `echo` needs of the prompt."""
        parsed = PromptsRequest.of(self, index)
        generation, scores = parsed.generation, self.scores_echo
        raw = replace(self.prompts[index], suffix=self.suffix)
        is_cut = generation.prompt.truncate_to is not None
        prompt = replace(
            generation.prompt,
            returns_text=self.response.echo and (raw.token_ids is not None or is_cut),
            returns_ids=generation.prompt.returns_ids or scores,
            returns_tokens=scores,
        )
        logprobs = replace(generation.logprobs, prompt=self.prompt_alternatives)
        return replace(parsed, generation=replace(generation, raw=raw, prompt=prompt, logprobs=logprobs))

    @property
    def has_embeds(self) -> bool:
        return any(raw.embeds is not None for raw in self.prompts)

    @property
    def scores_echo(self) -> bool:
        """True if the answer tells log-probabilities of an echoed prompt. The shape of chats has no place for them."""
        return self.response.echo and self.generation.logprobs.enabled and not self.has_chat_logprobs

    @property
    def prompt_alternatives(self) -> int | None:
        """The alternatives per token of the prompt, which is scored once for `prompt_logprobs` and the echo."""
        logprobs = self.generation.logprobs
        asked = [logprobs.prompt] if logprobs.prompt is not None else []
        asked += [logprobs.top] if self.scores_echo else []
        return None if not asked else -1 if -1 in asked else max(asked)


def text_parse(body: Mapping[str, Any]) -> TextRequest:
    """Check the body of a text completion. Raises ApiError."""
    known = {name: value for name, value in body.items() if name in SCHEMA.fields}
    has_logprobs = body.get("logprobs") is not None and body["logprobs"] is not False  # 0 is a number of alternatives
    cross_field_check({**known, "logprobs": has_logprobs})
    foreign_check(body)
    given = fields_read(SCHEMA, body)
    logprobs, suffix = given["logprobs"], given["suffix"] or None
    shared = values_parse(
        {**given, "logprobs": logprobs is not None, "top_logprobs": logprobs or 0},
        ignored=unknown_names(body, SCHEMA.fields),
    )
    prompts = _prompts(body, given)
    if len(prompts) > LIMITS.max_prompts:
        message = f"and prompt together must have at most {LIMITS.max_prompts} items, got {len(prompts)}"
        raise bad_value("prompt_embeds", message)
    parsed = TextRequest.extending(
        shared,
        generation=replace(shared.generation, best_of=given["best_of"]),
        field_names=partial(_field_name, shared.generation.logprobs.prompt is None),
        prompts=prompts,
        suffix=suffix,
    )
    _check_embeds(parsed)
    _check_choices(parsed)
    _check_max_tokens(parsed)
    together_check(parsed)
    if suffix is not None and parsed.response.echo:
        raise bad_value("suffix", "cannot be combined with echo; leave one of them out")
    _check_prompt_logprobs(parsed)
    return parsed


def _prompts(body: Mapping[str, Any], given: Mapping[str, Any]) -> list[RawPrompt]:
    """Return the prompts, those of vectors first. Clients that cannot leave `prompt` out send an empty text beside."""
    embeds, prompts = given["prompt_embeds"] or [], given["prompt"] or []
    if not embeds and not prompts:
        if "prompt" in body:
            raise bad_value("prompt", "must not be null", "invalid_type")
        raise bad_value("prompt", Prompts.missing, "missing_required_parameter")
    return embeds if embeds and body.get("prompt") == "" else [*embeds, *prompts]


def _field_name(has_no_prompt_logprobs: bool, path: str) -> str:
    """Return this schema's name for a field of chats."""
    is_logprobs = path == "top_logprobs" or (path == "prompt_logprobs" and has_no_prompt_logprobs)
    return "logprobs" if is_logprobs else path


def _check_embeds(parsed: TextRequest) -> None:
    """Refuse what needs the tokens of a prompt, which vectors have not."""
    if not parsed.has_embeds:
        return
    asked = {
        "suffix": parsed.suffix is not None,
        "echo": parsed.response.echo,
        "prompt_logprobs": parsed.generation.logprobs.prompt is not None,
        "return_token_ids": parsed.generation.prompt.returns_ids,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise bad_value(name, "cannot be combined with prompt_embeds, which have no tokens; leave one of them out")


def _check_choices(parsed: TextRequest) -> None:
    generation = parsed.generation
    n, best_of, num_prompts = generation.num_choices, generation.best_of, len(parsed.prompts)
    if best_of is not None:
        if best_of < n:
            raise bad_value("best_of", f"must be at least n, {n}; got {best_of}")
        if best_of > n and parsed.response.stream:
            message = f"cannot be more than n, {n}, where stream is true: the best are known at the end only"
            raise bad_value("best_of", message)
        if best_of > 1 and generation.beam is not None:
            message = "cannot be combined with use_beam_search, which finds the n best by itself; leave one of them out"
            raise bad_value("best_of", message)
    most = generation.max_choices
    if num_prompts > 1 and num_prompts * most > LIMITS.max_prompts:
        message = f"times the number of prompts must be at most {LIMITS.max_prompts}, got {most} x {num_prompts}"
        raise bad_value("best_of" if most > n else "n", message)


def _check_max_tokens(parsed: TextRequest) -> None:
    limit, best_of = parsed.generation.stop.max_tokens or 0, parsed.generation.best_of or 0
    if limit == 0 and not parsed.response.echo:
        raise bad_value("max_tokens", "must be at least 1, or 0 with echo: true for the prompt alone; got 0")
    if limit * best_of > LIMITS.max_choice_tokens:
        message = f"times max_tokens must be at most {LIMITS.max_choice_tokens}, got {best_of} x {limit}"
        raise bad_value("best_of", message)


def _check_prompt_logprobs(parsed: TextRequest) -> None:
    """Bound what every choice repeats of its prompt: it could be a hundred times what is computed."""
    alternatives, num_choices = parsed.prompt_alternatives, parsed.generation.num_choices
    if alternatives is None or num_choices == 1:
        return
    number = 1 + (LIMITS.max_logprobs if alternatives == -1 else alternatives)
    if num_choices * number > MAX_REPEATED:
        message = (
            "times the log-probabilities per token of the prompt, which every choice repeats, "
            f"must be at most {MAX_REPEATED}"
        )
        raise bad_value("n", f"{message}, got {num_choices} x {number}")
