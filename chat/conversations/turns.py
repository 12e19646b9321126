"""The acts on the turns of a conversation.

A turn begins and ends or fails, and then stays as it is: what is edited or asked again is another turn. So writing is
idempotent, a late beginning undoes no end, and two tabs only ever add to each other's turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from django.db import transaction

from chat.conversations.content import content_followed, content_text, question_split, question_title
from chat.conversations.facets import facets_add, facets_drop, turn_facets
from chat.conversations.files import files_use
from chat.conversations.models import ChatSpace, Conversation, SearchText, Turn, TurnState
from chat.conversations.search import words_of
from chat.conversations.services import ROW_BYTES, conversation_create, conversation_grow, title_index
from chat.conversations.space import Conflict, conversation_get, space_lock, space_take
from chat.errors import ApiError

MAX_TURNS = 10_000
"""Of a conversation."""
MAX_BEGUN = 256
"""Turns of a user whose runs have not ended: the maintenance worker looks at each of them."""
TURN_PARAMS = ("turn", "parent", "content", "run")
"""What errors of one turn are about, as `param`."""


@dataclass(frozen=True, slots=True)
class TurnSent:
    """A turn as a page or an import gives it. `run_public_id`, `project_id`: the run that answers, if there is one."""

    public_id: str
    parent: str
    role: str
    state: str
    body: Mapping[str, Any] = field(default_factory=dict)
    """Content, model, parameters, usage, timings, outcome and error, as far as they are known."""
    run_public_id: str = ""
    project_id: int = 0


@dataclass(frozen=True, slots=True)
class TurnShown:
    """A turn as it is shown. The content of an answer shows the choice that the next turn follows."""

    role: str
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        return content_text(self.body.get("content"))

    @property
    def typed(self) -> str:
        """The text without the files that are attached to a question."""
        return question_split(self.body.get("content"))[0] if self.role == "user" else self.text


def turn_put(*, user_id: int, conversation_id: str, sent: TurnSent) -> Turn:
    """Save a turn: a new one, or the progress or end of one that has begun. Return it as it is stored.

    What the body does not name keeps its value. A new turn becomes the head. Raises ApiError, and Conflict if the turn
    has ended otherwise.
    """
    with transaction.atomic():
        space = space_lock(user_id)
        return _put(space, conversation_get(user_id=user_id, public_id=conversation_id), sent)


def turns_put(
    *, user_id: int, conversation_id: str, fields: Mapping[str, Any], sent: Sequence[TurnSent]
) -> tuple[Conversation, list[Turn]]:
    """Save turns one after another, all or none, as `turn_put` does; create the conversation if it is not there.

    `fields` are those of a new conversation; one that is there keeps its own. Raises ApiError that names the turn.
    """
    with transaction.atomic():
        conversation = conversation_create(user_id=user_id, public_id=conversation_id, fields=fields)
        space = space_lock(user_id)
        saved = []
        for number, turn in enumerate(sent):
            try:
                saved.append(_put(space, conversation, turn))
            except ApiError as error:
                error.rename_fields(partial(_place_named, f"turns.{number}"))
                raise
    return conversation, saved


def _place_named(place: str, path: str) -> str:
    return f"{place}.{path}" if path in TURN_PARAMS else path


def _put(space: ChatSpace, conversation: Conversation, sent: TurnSent) -> Turn:
    stored: Turn | None = conversation.turns.filter(public_id=sent.public_id).first()
    if stored is not None and not _is_progress(stored, sent):
        return stored
    turn = _new(conversation, sent) if stored is None else stored
    num_bytes = _grow(turn, sent)
    space_take(space, num_bytes)
    turn.save()
    if stored is None:
        _become_head(conversation, turn)
    conversation_grow(conversation, num_bytes=num_bytes, num_turns=int(stored is None))
    _index(conversation, turn)
    facets_add(conversation, turn_facets(turn.role, sent.body))
    files_use(conversation, [sent.body.get("content")])
    return turn


def turns_add(*, user_id: int, conversation_id: str, sent: Sequence[TurnSent], head: str) -> Conversation:
    """Add whole turns, each after its parent, to a conversation without any. Raises ApiError that names the turn.

    `head`: the last turn that is shown; if it is none of them, the last one is.
    """
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = conversation_get(user_id=user_id, public_id=conversation_id)
        known: set[str] = set()
        for number, turn in enumerate(sent):
            if turn.public_id in known or turn.parent and turn.parent not in known:
                message = f"turns.{number} must have an id of its own, and the id of an earlier turn as its parent"
                raise ApiError("invalid_value", message, f"turns.{number}")
            known.add(turn.public_id)
        rows = [_row(conversation, turn) for turn in sent]
        num_bytes = sum(_grow(row, turn) for row, turn in zip(rows, sent, strict=True))
        space_take(space, num_bytes)
        Turn.objects.bulk_create(rows, batch_size=500)
        SearchText.objects.bulk_create(
            [text for row in rows if (text := _text(conversation, row)).words], batch_size=500
        )
        facets_add(conversation, set().union(*(turn_facets(turn.role, turn.body) for turn in sent)))
        files_use(conversation, (turn.body.get("content") for turn in sent))
        asked = next((row for row in rows if row.role == "user"), None)
        if asked is not None:
            _become_titled(conversation, asked)
        if rows:
            conversation.head = head if head in known else rows[-1].public_id
            Conversation.objects.filter(pk=conversation.pk).update(head=conversation.head)
        conversation_grow(conversation, num_bytes=num_bytes, num_turns=len(rows))
    return conversation


def turn_drop(*, user_id: int, conversation_id: str, public_id: str) -> None:
    """Remove a turn that no other follows, as an answer without a word. Raises ApiError."""
    with transaction.atomic():
        space = space_lock(user_id)
        conversation = conversation_get(user_id=user_id, public_id=conversation_id)
        turn = conversation.turns.filter(public_id=public_id).first()
        if turn is None:
            raise ApiError("not_found", "The conversation has no turn of this id.", "turn")
        if conversation.turns.filter(parent=public_id).exists():
            raise Conflict("The turn cannot be removed: others follow it.", "turn")
        num_bytes = _num_bytes(turn)
        turn.delete()
        facets_drop(conversation, turn_facets(turn.role, body_of(turn)))
        space_take(space, -num_bytes)
        conversation_grow(conversation, num_bytes=-num_bytes, num_turns=-1)
        if conversation.head == public_id:
            Conversation.objects.filter(pk=conversation.pk).update(head=turn.parent)


def turns_list(*, conversation: Conversation) -> list[Turn]:
    """Return all turns, parents before those that follow them."""
    return list(conversation.turns.order_by("id"))


def turns_shown(*, conversation: Conversation) -> list[TurnShown]:
    """Return the turns from the first to the head; without a head, to the latest turn."""
    turns = {turn.public_id: turn for turn in turns_list(conversation=conversation)}
    path: list[TurnShown] = []
    at = turns.get(conversation.head) or next(reversed(turns.values()), None)
    choice = None
    while at is not None:
        body = body_of(at)
        path.append(TurnShown(at.role, body | {"content": content_followed(body.get("content"), choice)}))
        at, choice = turns.get(at.parent), body.get("choice")
    return path[::-1]


def turns_begun() -> list[Turn]:
    """Return the turns whose runs are not known to have ended, the oldest first."""
    begun = Turn.objects.filter(state=TurnState.BEGUN, conversation__deleted_at=None).exclude(run_public_id="")
    return list(begun.select_related("conversation").order_by("id"))


def body_of(turn: Turn) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(turn.body)
    return body


def _is_progress(stored: Turn, sent: TurnSent) -> bool:
    """Return True if what is sent goes beyond what is stored. Raises Conflict if it contradicts it."""
    if (stored.parent, stored.role) != (sent.parent, sent.role):
        raise Conflict("The conversation has another turn of this id; give each turn an id of its own.", "turn")
    if stored.state == TurnState.BEGUN:
        return True
    if sent.state == TurnState.BEGUN:
        return False
    if stored.state == TurnState.FAILED:
        return sent.state == TurnState.ENDED
    # Of one run every account is the same, up to what is shown of it: the first one stays.
    if not stored.run_public_id and not _says_the_same(body_of(stored), sent.body):
        raise Conflict("The turn has ended with another content; save the change as another turn.", "content")
    return False


def _says_the_same(stored: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    return "content" not in sent or orjson.loads(orjson.dumps(sent["content"])) == stored.get("content")


def _new(conversation: Conversation, sent: TurnSent) -> Turn:
    if conversation.num_turns >= MAX_TURNS:
        message = f"A conversation may have {MAX_TURNS} turns; go on in another one."
        raise ApiError("insufficient_quota", message, "turn", limit=MAX_TURNS)
    # NOTE: a parent that is there before its turn, and never changes, keeps cycles out.
    if sent.parent and not conversation.turns.filter(public_id=sent.parent).exists():
        raise ApiError("invalid_value", "parent must be the id of a saved turn of the conversation", "parent")
    if sent.run_public_id and _num_begun(conversation.user_id) >= MAX_BEGUN:
        message = f"You have {MAX_BEGUN} answers that have begun and not ended, as many as anybody may; wait for one."
        raise ApiError("rate_limit_exceeded", message, "run", limit=MAX_BEGUN)
    return _row(conversation, sent)


def _row(conversation: Conversation, sent: TurnSent) -> Turn:
    return Turn(conversation=conversation, public_id=sent.public_id, parent=sent.parent, role=sent.role, body="")


def _num_begun(user_id: int) -> int:
    begun = Turn.objects.filter(state=TurnState.BEGUN, conversation__user_id=user_id).exclude(run_public_id="")
    return int(begun.count())


def _grow(turn: Turn, sent: TurnSent) -> int:
    """Take over what is sent, and return by how many bytes the turn has grown."""
    before = _num_bytes(turn) if turn.body else 0
    kept = body_of(turn) if turn.body else {}
    turn.body = orjson.dumps({**kept, **sent.body}).decode()
    turn.state = sent.state
    turn.run_public_id = sent.run_public_id or turn.run_public_id
    turn.project_id = sent.project_id or turn.project_id
    return _num_bytes(turn) - before


def _num_bytes(turn: Turn) -> int:
    return ROW_BYTES + len(turn.body.encode())


def _become_head(conversation: Conversation, turn: Turn) -> None:
    conversation.head = turn.public_id
    Conversation.objects.filter(pk=conversation.pk).update(head=turn.public_id)
    if turn.role == "user":
        _become_titled(conversation, turn)


def _become_titled(conversation: Conversation, asked: Turn) -> None:
    """Give a conversation without a title the beginning of a question."""
    title = question_title(body_of(asked).get("content"))
    if title and not conversation.title:
        conversation.title = title
        Conversation.objects.filter(pk=conversation.pk).update(title=title)
        title_index(conversation)


def _index(conversation: Conversation, turn: Turn) -> None:
    text = _text(conversation, turn)
    if not SearchText.objects.filter(turn=turn).update(words=text.words) and text.words:
        text.save()


def _text(conversation: Conversation, turn: Turn) -> SearchText:
    words = words_of(content_text(body_of(turn).get("content")))
    return SearchText(user_id=conversation.user_id, conversation=conversation, turn=turn, words=words)
