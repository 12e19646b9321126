"""The bodies of /tokenize, /detokenize and /v1/chat/completions/render as vLLM's and llama.cpp's clients send them.

Each reads to the values of a request whose task is to be read. Meaning of every field: docs/api/tokens.md.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from chat.api.openai.prompt_format import PromptFormat
from chat.api.request.fields import Array, Boolean, Text, refuse
from chat.api.request.ignored import unknown_names
from chat.api.request.prompt_field import token_ids_read
from chat.api.request.refusals import refusal_reworded
from chat.api.request.schema import ChatCompletionRequest, request_check, values_filled
from chat.api.request.sharing import SharingRequest, fields_read
from chat.errors import ApiError
from engine.api import EngineError, RawPrompt, Task

LIMITS = settings.LIGHTCONE_LIMITS
MAX_CHARS = LIMITS.max_tokenize_chars
CHARS_PER_ID = 4


class TokenIds(Array):
    """Token ids, none too many."""

    def __init__(self, **kwargs: Any) -> None:
        item = {"type": "integer", "minimum": 0}
        super().__init__(
            item_schema=item, max_items=max(1, MAX_CHARS // CHARS_PER_ID), is_required=True, nullable=False, **kwargs
        )

    def run_validation(self, data: Any = serializers.empty) -> tuple[int, ...]:
        if data is serializers.empty:
            raise refuse("missing_required_parameter", "is required: an array of token ids")
        return token_ids_read(super().run_validation(data))


class TokenizeRequest(SharingRequest):
    prompt = Text(max_chars=MAX_CHARS, help_text="A text, taken as it is.")
    content = Text(max_chars=MAX_CHARS, help_text="The same in llama.cpp's form, whose answer is shorter.")
    add_special_tokens = Boolean(
        help_text="Let the tokenizer add its own tokens. Absent: true for a prompt, false for messages."
    )
    add_special = Boolean(default=False, help_text="The same beside content.")
    parse_special = Boolean(
        default=True, help_text="Beside content: false takes control tokens that it spells as ordinary text."
    )
    return_token_strs = Boolean(default=False, help_text="Return the text of each token too.")
    with_pieces = Boolean(default=False, help_text="Beside content: each token with its text.")

    shared = ("model", "request_id", "user")


class DetokenizeRequest(SharingRequest):
    tokens = TokenIds(help_text="Token ids.")

    shared = ("model", "request_id", "user")


TOKENIZE, DETOKENIZE = TokenizeRequest(), DetokenizeRequest()
CHAT_FIELDS = frozenset(ChatCompletionRequest().fields)
FORMS = ("messages", "prompt", "content")


class Tokenize(PromptFormat):
    """Beyond the values of the chat schema: `form`, which of `FORMS` was sent, and `with_strings`, whether texts of tokens are wanted."""

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        form = _form(body)
        given = fields_read(TOKENIZE, body)
        adds_special = given["add_special"] if form == "content" else given["add_special_tokens"]
        if form == "messages":
            values = request_check(_as_chat(body))
            values["add_special_tokens"] = bool(adds_special)
        else:
            values = values_filled({name: given[name] for name in TokenizeRequest.shared})
            is_ordinary = form == "content" and not given["parse_special"]
            values["raw"] = RawPrompt(text=given[form], param=form, is_ordinary=is_ordinary)
            values["add_special_tokens"] = adds_special is not False
        with_strings = given["with_pieces"] if form == "content" else given["return_token_strs"]
        ignored = unknown_names(body, {*TOKENIZE.fields, *CHAT_FIELDS})
        return {
            **values,
            "ignored": ignored,
            "form": form,
            "with_strings": with_strings,
            **_reading(returns_tokens=with_strings, return_token_ids=True),
        }

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_reworded(error, values)


class Detokenize(PromptFormat):
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        given = fields_read(DETOKENIZE, body)
        raw = RawPrompt(token_ids=given.pop("tokens"), param="tokens")
        return {**values_filled(given), "raw": raw, **_reading(return_prompt_text=True)}


class Render(PromptFormat):
    """A chat completion's body, checked as one; only its prompt is made."""

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**request_check(body), **_reading(return_token_ids=True, return_prompt_text=True)}

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_reworded(error, values)


def _reading(**wanted: bool) -> dict[str, Any]:
    """`wanted`: what the admission tells of the prompt."""
    return {"task": Task.READ, **wanted}


def _form(body: dict[str, Any]) -> str:
    """Which of the forms the body has."""
    sent = [name for name in FORMS if body.get(name) is not None]
    if not sent:
        raise ApiError(
            "missing_required_parameter",
            "prompt is required: send prompt, messages, or content in llama.cpp's form",
            "prompt",
        )
    if len(sent) > 1:
        raise ApiError("invalid_value", f"{sent[1]} cannot be combined with {sent[0]}; send one of them", sent[1])
    return sent[0]


def _as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """The body without what would matter to an answer alone; `add_special_tokens` may be null here."""
    return {name: value for name, value in body.items() if name in PROMPT_FIELDS}


PROMPT_FIELDS = frozenset(
    (
        *(
            "messages",
            "model",
            "user",
            "request_id",
            "tools",
            "functions",
            "tool_choice",
            "function_call",
            "documents",
            "verbosity",
        ),
        *(
            "add_generation_prompt",
            "continue_final_message",
            "chat_template",
            "chat_template_kwargs",
            "mm_processor_kwargs",
        ),
        *("reasoning_effort", "truncate_prompt_tokens", "truncation_side", "media_io_kwargs"),
    )
)
"""What of a chat completion's request makes its prompt."""

TOKENIZE_DIALECT, DETOKENIZE_DIALECT, RENDER_DIALECT = Tokenize(), Detokenize(), Render()
