"""The requests of the page, and the names of its runs.

Fields without effect are refused: they would be mistakes here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from django.conf import settings

from chat.access.keys import Caller
from chat.api.dialect import AnswerHead
from chat.api.request.parse import request_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import FIELD_NAMES
from chat.conversations.runs import run_public_id
from chat.errors import ApiError
from chat.generation.completions import DetachPolicy

WITHOUT_EFFECT = frozenset(
    {
        *("user", "safety_identifier"),  # the log names whoever is signed in
        *("stream_options", "stream_interval", "store", "request_id"),
        *("return_tokens_as_token_ids", "return_prompt_text"),
    }
)
"""Fields for what the page neither shows nor keeps."""
FIELDS_TAKEN = FIELD_NAMES - WITHOUT_EFFECT


def page_request_parse(body: dict[str, Any]) -> ParsedRequest:
    """Check a request of the page. Raises ApiError."""
    for name in body:
        if name not in FIELD_NAMES:
            message = f"{name[:64]} is no field of a request; check its spelling or leave it out"
            raise ApiError("unsupported_parameter", message, name[:64])
        if name in WITHOUT_EFFECT:
            message = f"{name} has no effect in the playground; leave it out, or use the API"
            raise ApiError("unsupported_parameter", message, name)
    return request_parse(body)


def page_policy(caller: Caller, run_name: str, parsed: ParsedRequest) -> Callable[[AnswerHead], DetachPolicy]:
    """Return a function from the head of an answer to the detach policy of its run, which may be attached again."""
    grace_s, public_id = settings.LIGHTCONE_PLAYGROUND_DETACH_GRACE_S, run_public_id(caller, run_name)
    has_ranks = not parsed.generation.logprobs.token_ids

    def policy(head: AnswerHead) -> DetachPolicy:
        kept = orjson.dumps(head.dump() | {"has_ranks": has_ranks})
        return DetachPolicy(grace_s, public_id=public_id, resume_context=kept)

    return policy


def kept_read(resume_context: bytes) -> tuple[AnswerHead, bool]:
    """Return the head that `page_policy` kept, and whether alternatives of tokens are the most likely ones."""
    plain = orjson.loads(resume_context)
    return AnswerHead.load(plain), plain.get("has_ranks", True)
