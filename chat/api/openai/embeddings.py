"""`POST /v1/embeddings`: a vector per input, each a run of its own; answered once all are there."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.multi_run import RunGroup
from chat.api.answering.pipeline import Accepted, request_start
from chat.api.openai.embedding_request import Embeddings, ParsedEmbedding
from chat.api.text_format.head import usage_sum
from chat.api.view import json_response
from chat.errors import ApiError
from engine.api import Completed, Embedded, Event, Usage


async def embeddings(request: HttpRequest, dialect: Embeddings) -> HttpResponseBase:
    accepted, group = await request_start(request, dialect, embeddings_begin)
    try:
        return json_response(await embeddings_body(group, accepted.parsed), headers=group.headers)
    except ApiError as error:
        error.extra_headers = group.headers | error.extra_headers
        raise
    finally:
        group.leave()


async def embeddings_begin(accepted: Accepted[ParsedEmbedding]) -> RunGroup:
    """Start the runs of a checked request. The caller must leave them. Raises ApiError."""
    group = RunGroup(accepted, accepted.parsed.of, len(accepted.parsed.inputs))
    await group.start()
    return group


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
        "model": group.runs[0].model.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def vector_json(vector: Sequence[float]) -> orjson.Fragment:
    """Written when it comes: thousands of vectors at once would hold up everybody's events, and are several times as large unwritten."""
    return orjson.Fragment(orjson.dumps(vector))


def vector_base64(vector: Sequence[float]) -> str:
    """Little-endian 32-bit floats, as OpenAI's clients unpack them."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
