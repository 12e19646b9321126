"""Heads of answers before and after the admission, and as JSON: kept with runs that somebody else may have to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from chat.dialects.dialect import AnswerHead
from engine.api import Admitted


def head_admitted(head: AnswerHead, admitted: Admitted) -> AnswerHead:
    """The head with what the admission tells."""
    return replace(head, num_prompt_tokens=admitted.num_prompt_tokens, prompt_ids=admitted.prompt_ids, prompt_text=admitted.prompt_text)


def head_dump(head: AnswerHead) -> dict[str, Any]:
    """A head before its admission, for JSON."""
    return asdict(head)


def head_load(plain: Mapping[str, Any]) -> AnswerHead:
    """What `head_dump` gave, also that of an older or newer release: names that are unknown are dropped."""
    known = {field.name for field in fields(AnswerHead)}
    return AnswerHead(**{name: value for name, value in plain.items() if name in known})
