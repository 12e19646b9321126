"""The body of a request for embeddings: its own fields and those it shares with chat completions. Meaning: docs/api/embeddings.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from chat.api.openai.prompt_format import PromptFormat
from chat.api.request.cross_field import cross_field_check
from chat.api.request.fields import Boolean, Integer, Text
from chat.api.request.ignored import unknown_names
from chat.api.request.parse import fields_read, values_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.prompt_field import Prompts
from chat.api.request.schema import SharingRequest
from chat.errors import ApiError
from engine.api import EmbedOptions, RawPrompt, Task

LIMITS = settings.LIGHTCONE_LIMITS


class EmbeddingRequest(SharingRequest):
    input = Prompts(max_items=LIMITS.max_inputs, help_text="One input or several, as text or as token ids.")
    encoding_format = Text(
        choices=("float", "base64"), default="float", help_text="base64: little-endian 32-bit floats."
    )
    dimensions = Integer(minimum=1, help_text="Only the first dimensions, made of length 1 again. Absent: all.")
    pooling = Text(
        choices=("mean", "last"), default="mean", help_text="The mean of all hidden states, or the last one."
    )
    normalize = Boolean(default=True, help_text="Vectors are always of length 1: false is refused.")
    add_special_tokens = Boolean(
        default=True, nullable=False, help_text="Let the tokenizer add its own tokens to a text."
    )

    shared = (
        *(
            "model",
            "user",
            "truncate_prompt_tokens",
            "truncation_side",
            "priority",
            "request_id",
            "cache_salt",
            "service_tier",
        ),
        *("metadata", "safety_identifier", "prompt_cache_key"),
    )


SCHEMA = EmbeddingRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEmbedding(ParsedRequest):
    """A checked request for embeddings."""

    inputs: Sequence[RawPrompt]
    is_base64: bool

    def of(self, index: int) -> ParsedRequest:
        """Return the request of the run of input number `index`."""
        return ParsedRequest(
            model=self.model,
            generation=replace(self.generation, raw=self.inputs[index]),
            delivery=replace(self.delivery, is_further=index > 0),
        )


class Embeddings(PromptFormat):
    def parse(self, body: dict[str, Any]) -> ParsedEmbedding:
        cross_field_check({name: value for name, value in body.items() if name in SCHEMA.fields})
        given = fields_read(SCHEMA, body)
        if not given["normalize"]:
            message = "normalize cannot be false: vectors are always of length 1; leave it out"
            raise ApiError("unsupported_parameter", message, "normalize")
        parsed = values_parse(given, ignored=unknown_names(body, SCHEMA.fields))
        embed = EmbedOptions(given["pooling"], given["dimensions"])
        return ParsedEmbedding.extending(
            parsed,
            generation=replace(parsed.generation, task=Task.EMBED, embed=embed),
            inputs=given["input"],
            is_base64=given["encoding_format"] == "base64",
        )


EMBEDDINGS = Embeddings()
