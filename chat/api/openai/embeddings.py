"""`POST /v1/embeddings`: a run for each input, answered once all have their vectors (docs/api/embeddings.md)."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.multi_run import RunGroup, group_start
from chat.api.answering.pipeline import request_start
from chat.api.openai.dialect import PromptFormat
from chat.api.request.cross_field import cross_field_check
from chat.api.request.fields import Boolean, Integer, Text
from chat.api.request.parse import fields_read, unknown_names, values_parse
from chat.api.request.parsed import PromptsRequest
from chat.api.request.schema import SharingRequest
from chat.api.request.text_schema import Prompts
from chat.api.text_format.head import usage_sum
from chat.api.view import json_response
from chat.errors import ApiError
from engine.api import Completed, Embedded, EmbedOptions, Event, Task, Usage

POOLINGS = ("mean", "last")
LIMITS = settings.LIGHTCONE_LIMITS


class EmbeddingRequest(SharingRequest):
    input = Prompts(max_items=LIMITS.max_inputs, help_text="One input or several, as text or as token ids.")
    encoding_format = Text("base64: little-endian 32-bit floats.", choices=("float", "base64"), default="float")
    dimensions = Integer("Only the first dimensions, made of length 1 again. Absent: all.", minimum=1)
    pooling = Text(
        "The mean of all hidden states, or the last one. Absent: as the model's files say.", choices=POOLINGS
    )
    normalize = Boolean("Make vectors of length 1. Absent: as the model's files say; false is refused.")
    add_special_tokens = Boolean("Let the tokenizer add its own tokens to a text.", default=True, nullable=False)

    shared = tuple(
        """
        model user truncate_prompt_tokens truncation_side priority request_id cache_salt service_tier metadata
        safety_identifier prompt_cache_key
        """.split()
    )


SCHEMA = EmbeddingRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEmbedding(PromptsRequest):
    is_base64: bool


class Embeddings(PromptFormat):
    def parse(self, body: dict[str, Any]) -> ParsedEmbedding:
        cross_field_check({name: value for name, value in body.items() if name in SCHEMA.fields})
        given = fields_read(SCHEMA, body)
        if given["normalize"] is False:
            message = "normalize cannot be false: vectors have length 1 unless the model says otherwise; leave it out"
            raise ApiError("unsupported_parameter", message, "normalize")
        parsed = values_parse(given, ignored=unknown_names(body, SCHEMA.fields))
        embed = EmbedOptions(given["pooling"], given["dimensions"], given["normalize"])
        return ParsedEmbedding.extending(
            parsed,
            generation=replace(parsed.generation, task=Task.EMBED, embed=embed),
            prompts=given["input"],
            is_base64=given["encoding_format"] == "base64",
        )


EMBEDDINGS = Embeddings()


async def embeddings(request: HttpRequest, dialect: Embeddings) -> HttpResponseBase:
    accepted, group = await request_start(request, dialect, group_start)
    request.lightcone_headers = group.headers
    try:
        return json_response(await embeddings_body(group, accepted.parsed), headers=group.headers)
    finally:
        group.leave()


async def embeddings_body(group: RunGroup, parsed: ParsedEmbedding) -> dict[str, Any]:
    """Read all runs to their ends. The vectors stand in the order of the inputs. Raises ApiError."""
    written = vector_base64 if parsed.is_base64 else vector_json
    vectors: dict[int, str | orjson.Fragment] = {}
    usages: list[Usage] = []
    while not group.is_over:
        taken = await group.next()
        if taken is None or not isinstance(taken[1], Event):
            continue
        index, payload = taken[0], taken[1].payload
        if isinstance(payload, Embedded):
            vectors[index] = written(payload.vector)
        elif isinstance(payload, Completed):
            usages.append(payload.usage)
    num_tokens = usage_sum(usages).prompt_tokens
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": vectors[index]} for index in sorted(vectors)],
        "model": group.runs[0].head.model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def vector_json(vector: Sequence[float]) -> orjson.Fragment:
    """Return the JSON of a vector when it comes: thousands at once would hold up the loop, and are larger unwritten."""
    return orjson.Fragment(orjson.dumps(vector))


def vector_base64(vector: Sequence[float]) -> str:
    """Return the vector as little-endian 32-bit floats, as OpenAI's clients unpack them."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
