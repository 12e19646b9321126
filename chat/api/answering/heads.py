"""Heads of answers before and after the admission, and as JSON: kept with runs that somebody else may have to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from chat.api.dialect import AnswerHead
from chat.api.request.messages import last_message_text
from chat.api.request.tools import is_forced
from chat.catalog.services import ModelEntry
from engine.api import Admitted, GenerationRequest

RENAMED_FIELDS = {"told": "echo_fields"}
"""Fields of stored heads whose names have changed."""


def head_begun(request_id: str, values: dict[str, Any], model: ModelEntry, generation: GenerationRequest) -> AnswerHead:
    """What the values and the model say of the answer."""
    options = values["stream_options"] or {}
    last_role, last_text = (
        last_message_text(generation.messages, values["messages"]) if generation.raw is None else ("assistant", "")
    )
    opens_turn = generation.prompt.add_generation_prompt and not generation.prompt.continue_final_message
    role = "assistant" if opens_turn else last_role
    return AnswerHead(
        request_id=request_id,
        created=int(generation.arrived_at),
        model=model.name,
        fingerprint=model.fingerprint,
        role=role,
        num_choices=values["n"],
        has_logprobs=values["logprobs"],
        include_usage=options.get("include_usage", False),
        continuous_usage=options.get("continuous_usage_stats", False),
        service_tier=values["service_tier"],
        num_prompt_tokens=0,
        returns_token_ids=bool(values["return_token_ids"]),
        names_tokens_by_id=bool(values["return_tokens_as_token_ids"]),
        includes_reasoning=values["include_reasoning"] is not False,
        echo=last_text if values["echo"] and last_role == role else "",
        stream_interval=values["stream_interval"] or 1,
        answers_function_call=bool(values["functions"]),
        is_call_forced=is_forced(generation.tool_choice),
        temperature=generation.sampling.temperature,
        top_p=generation.sampling.top_p,
        echo_fields=values["echo_fields"],
    )


def head_admitted(head: AnswerHead, admitted: Admitted) -> AnswerHead:
    """The head with what the admission tells."""
    return replace(
        head,
        num_prompt_tokens=admitted.num_prompt_tokens,
        prompt_ids=admitted.prompt_ids,
        prompt_text=admitted.prompt_text,
    )


def head_dump(head: AnswerHead) -> dict[str, Any]:
    """Return a head before its admission as JSON."""
    return asdict(head)


def head_load(plain: Mapping[str, Any]) -> AnswerHead:
    """Return the head that `head_dump` wrote, also in another release: unknown names are dropped."""
    known = {field.name for field in fields(AnswerHead)}
    renamed = {RENAMED_FIELDS.get(name, name): value for name, value in plain.items()}
    return AnswerHead(**{name: value for name, value in renamed.items() if name in known})
