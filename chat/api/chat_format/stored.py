"""Chat completions that outlive their request: in the store and as resumable runs, in one form for all dialects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from django.http import HttpRequest

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import FRAMINGS
from chat.api.dialect import AnswerHead, Framing
from chat.api.stored.services import StoredState
from chat.generation.completions import DetachPolicy
from engine.api import Admitted, Completed, Event, Outcome

RESUMABLE_HEADER = "X-Lightcone-Resumable"
DETACH_GRACE_S = 60.0
ID_PREFIX = "chatcmpl-"
FRAMINGS_BEFORE = {"lightcone": "plain", "scale": "named"}
"""By the dialect, which a run that was started before an update names instead."""


def resumable_asked(request: HttpRequest) -> bool:
    """Return True if the run is to go on when its client's connection breaks."""
    return request.headers.get(RESUMABLE_HEADER, "").strip().lower() in ("true", "1")


def resumable_policy(framing: Framing, head: AnswerHead) -> DetachPolicy:
    """Return the policy that keeps what it takes to write the answer again, in the same framing."""
    return DetachPolicy(
        DETACH_GRACE_S,
        public_id=head.request_id,
        resume_context=orjson.dumps({"framing": framing.name, "head": head.dump()}),
    )


def kept_read(resume_context: bytes) -> tuple[AnswerHead, Framing]:
    """Return what `resumable_policy` kept: the head before its admission, and the framing of the stream."""
    plain = orjson.loads(resume_context)
    name = plain["framing"] if "framing" in plain else FRAMINGS_BEFORE[plain["dialect"]]
    return AnswerHead.load(plain["head"]), FRAMINGS[name]


def chat_ended(request: Mapping[str, Any], events: Iterable[Event]) -> tuple[StoredState, bytes] | None:
    """Return the end of a kept answer from all events of its run; None without a whole answer."""
    answer: ChatAnswer | None = None
    is_finished = False
    for event in events:
        if isinstance(event.payload, Admitted):
            answer = ChatAnswer(AnswerHead.load(request["head"]).admitted(event.payload))
        elif answer is not None:
            answer.feed(event)
        is_finished = isinstance(event.payload, Completed) and event.payload.outcome == Outcome.FINISHED
    if answer is None or not is_finished:
        return None
    return StoredState(StoredState.FINISHED), answer.body()  # checkers of types know a member by its literal alone
