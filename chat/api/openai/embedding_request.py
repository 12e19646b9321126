"""The body of a request for embeddings: its own fields and those it shares with chat completions. Meaning: docs/api/embeddings.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from chat.api.openai.prompt_format import PromptFormat
from chat.api.request.cross_field import cross_field_check
from chat.api.request.fields import Boolean, Integer, Text
from chat.api.request.prompt_field import Prompts
from chat.api.request.schema import values_filled
from chat.api.request.sharing import SharingRequest, fields_read
from chat.errors import ApiError
from engine.api import EmbedOptions, Task

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


class Embeddings(PromptFormat):
    """Beyond the values of the chat schema: `inputs` and `encoding_format`."""

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """The values of a request for embeddings; `input_values` makes those of one of its runs. Raises ApiError."""
        cross_field_check(
            {name: value for name, value in body.items() if name in SCHEMA.fields}, max_id_chars=LIMITS.max_id_chars
        )
        given = fields_read(SCHEMA, body)
        if not given["normalize"]:
            message = "normalize cannot be false: vectors are always of length 1; leave it out"
            raise ApiError("unsupported_parameter", message, "normalize")
        embed = EmbedOptions(given["pooling"], given["dimensions"])
        return values_filled({**given, "inputs": given["input"], "task": Task.EMBED, "embed": embed})


def input_values(values: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The values of the run of input number `index`."""
    return {**values, "raw": values["inputs"][index], "is_further": index > 0}


EMBEDDINGS = Embeddings()
