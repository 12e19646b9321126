"""`POST /v1/rerank` in Jina's shape and `POST /v2/rerank` in Cohere's: a run for each document (docs/api/rerank.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.multi_run import RunGroup, group_start
from chat.api.answering.pipeline import request_start
from chat.api.openai.dialect import PromptFormat
from chat.api.openapi.notation import TEXT
from chat.api.request.cross_field import cross_field_check
from chat.api.request.fields import Array, Boolean, Integer, Text, bad_value, echo, refuse
from chat.api.request.parse import fields_read, unknown_names, values_parse
from chat.api.request.parsed import PromptsRequest
from chat.api.request.schema import SharingRequest
from chat.api.text_format.head import usage_sum
from chat.api.view import json_response
from engine.api import Completed, Event, RawPrompt, Scored, Task, Usage

LIMITS = settings.LIGHTCONE_LIMITS
DOCUMENTS_PER_UNIT = 100
"""Of one of Cohere's search units."""
NOT_SERVED = {
    "max_chunks_per_doc": "send max_tokens_per_doc, or parts of a document as documents of their own",
    "rank_fields": "send the text that counts as the document",
}
"""Fields of other servers that would change scores -> what to do instead."""
DOCUMENT = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}


def document_read(value: Any) -> str:
    """Return the text of a document. Raises ValidationError."""
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise refuse("invalid_type", f"must be a string or an object with a text; got {echo(value)}")
    if not text.strip():
        raise refuse("invalid_value", "must not be empty; leave it out")
    return text


class RerankRequest(SharingRequest):
    query = Text("What the documents should answer.", is_filled=True, is_required=True)
    documents = Array(
        document_read,
        item_schema={"oneOf": [TEXT, DOCUMENT]},
        max_items=LIMITS.max_inputs,
        if_empty="must not be empty; send at least one document",
        help_text="The documents to rank, as texts or as objects with a text.",
        is_required=True,
    )
    top_n = Integer("Only so many results, the best. Absent: all.", minimum=1)
    return_documents = Boolean("Results hold their documents. Absent: in Jina's shape they do, in Cohere's not.")
    max_tokens_per_doc = Integer(
        "Only so many tokens of a document count, its first. Absent: all, and a pair beyond the context is refused.",
        minimum=1,
    )

    shared = tuple(
        "model user priority request_id cache_salt service_tier metadata safety_identifier prompt_cache_key".split()
    )


SCHEMA = RerankRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRerank(PromptsRequest):
    top_n: int | None
    returns_documents: bool


class JinaRerank(PromptFormat):
    """Jina's shape, which Cohere's first version shares but for `meta` and `usage`."""

    returns_documents = True

    def parse(self, body: dict[str, Any]) -> ParsedRerank:
        for name, remedy in NOT_SERVED.items():
            if body.get(name) is not None:
                raise bad_value(name, f"is not served; {remedy}", "unsupported_parameter")
        cross_field_check({name: value for name, value in body.items() if name in SCHEMA.fields})
        given = fields_read(SCHEMA, body)
        parsed = values_parse(given | {"documents": None}, ignored=unknown_names(body, SCHEMA.fields))
        returns = given["return_documents"]
        return ParsedRerank.extending(
            parsed,
            generation=replace(parsed.generation, task=Task.SCORE),
            prompts=[
                RawPrompt(
                    text=given["query"],
                    document=document,
                    max_document_tokens=given["max_tokens_per_doc"],
                    param=f"documents.{index}",
                )
                for index, document in enumerate(given["documents"])
            ],
            top_n=given["top_n"],
            returns_documents=self.returns_documents if returns is None else returns,
        )

    def body(self, results: Sequence[Mapping[str, Any]], group: RunGroup, num_tokens: int) -> dict[str, Any]:
        head = group.runs[0].head
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        return {"id": f"rerank-{head.request_id}", "model": head.model, "results": results, "usage": usage}


class CohereRerank(JinaRerank):
    """Cohere's second version."""

    returns_documents = False

    def body(self, results: Sequence[Mapping[str, Any]], group: RunGroup, num_tokens: int) -> dict[str, Any]:
        meta = {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": -(-len(group.runs) // DOCUMENTS_PER_UNIT)},
            "tokens": {"input_tokens": num_tokens},
        }
        return {"id": f"rerank-{group.runs[0].head.request_id}", "results": results, "meta": meta}


JINA, COHERE = JinaRerank(), CohereRerank()


async def rerank(request: HttpRequest, dialect: JinaRerank) -> HttpResponseBase:
    accepted, group = await request_start(request, dialect, group_start)
    request.lightcone_headers = group.headers
    try:
        scores, usages = await scores_read(group)
        results = ranked(scores, accepted.parsed)
        return json_response(dialect.body(results, group, usage_sum(usages).prompt_tokens), headers=group.headers)
    finally:
        group.leave()


async def scores_read(group: RunGroup) -> tuple[dict[int, float], list[Usage]]:
    """Read all runs to their ends; return the score of each document by its place, and the counts. Raises ApiError."""
    scores: dict[int, float] = {}
    usages: list[Usage] = []
    while not group.is_over:
        taken = await group.next()
        if taken is None or not isinstance(taken[1], Event):
            continue
        index, payload = taken[0], taken[1].payload
        if isinstance(payload, Scored):
            scores[index] = payload.score
        elif isinstance(payload, Completed):
            usages.append(payload.usage)
    return scores, usages


def ranked(scores: Mapping[int, float], parsed: ParsedRerank) -> list[dict[str, Any]]:
    """Return the results, best first; of equal scores the earlier document."""
    best = sorted(scores, key=lambda index: (-scores[index], index))[: parsed.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in best]
    if parsed.returns_documents:
        for result in results:
            result["document"] = {"text": parsed.prompts[result["index"]].document}
    return results
