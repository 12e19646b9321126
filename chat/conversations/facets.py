"""What conversations are filtered by: the models that answered, their tags, and whether tools took part.

Each is a row of an index, kept in step by the services of conversations and turns, so that no filter reads a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from django.db.models import Min, QuerySet

from chat.conversations.content import takes_tools
from chat.conversations.models import MAX_FACET_CHARS, Conversation, FacetKind, SearchFacet

MAX_NAMED = 1_000
"""Models, and tags, that are listed to choose from."""

Facet = tuple[str, str]
"""A kind and a name."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What conversations must be to be found. `since` and `until` bound their last change; `until` is not within."""

    model: str = ""
    tag: str = ""
    has_tools: bool = False
    since: datetime | None = None
    until: datetime | None = None

    @property
    def facets(self) -> tuple[Facet, ...]:
        """The kinds and keys that a conversation must have."""
        named = ((FacetKind.MODEL, facet_key(self.model)), (FacetKind.TAG, facet_key(self.tag)))
        tools = ((str(FacetKind.TOOLS), ""),) if self.has_tools else ()
        return (*((str(kind), key) for kind, key in named if key), *tools)

    def narrow(self, conversations: QuerySet[Conversation], *, user_id: int) -> QuerySet[Conversation]:
        """Return the conversations of the user among these that fit."""
        for kind, key in self.facets:
            having = SearchFacet.objects.filter(user_id=user_id, kind=kind, key=key)
            conversations = conversations.filter(pk__in=having.values("conversation_id"))
        bounds = {"updated_at__gte": self.since, "updated_at__lt": self.until}
        return conversations.filter(**{name: at for name, at in bounds.items() if at is not None})


def facet_key(name: str) -> str:
    return _plain(name).casefold()[:MAX_FACET_CHARS]


def turn_facets(role: str, body: Mapping[str, Any]) -> set[Facet]:
    """Return the facets that a turn gives its conversation."""
    model = body.get("model")
    found: set[Facet] = {(str(FacetKind.MODEL), _plain(model))} if isinstance(model, str) and _plain(model) else set()
    return found | ({(str(FacetKind.TOOLS), "")} if takes_tools(role, body) else set())


def facets_add(conversation: Conversation, facets: Iterable[Facet]) -> None:
    """Add facets to a conversation; it may have some of them."""
    rows = [
        SearchFacet(
            user_id=conversation.user_id, conversation=conversation, kind=kind, key=facet_key(name), name=_plain(name)
        )
        for kind, name in facets
    ]
    SearchFacet.objects.bulk_create(rows, ignore_conflicts=True)


def tags_index(conversation: Conversation) -> None:
    """Let filters find the present tags."""
    conversation.facets.filter(kind=FacetKind.TAG).delete()
    facets_add(conversation, ((str(FacetKind.TAG), tag) for tag in conversation_tags(conversation)))


def facets_drop(conversation: Conversation, facets: set[Facet]) -> None:
    """Remove what a turn gave that has gone, unless another turn gives it. Reads turns until it finds all of that."""
    if not facets:
        return
    turns = conversation.turns.order_by("-id").values_list("role", "body")
    missing = {(kind, facet_key(name)) for kind, name in facets}
    for role, body in turns.iterator(chunk_size=10):
        if not missing:
            return
        missing -= {(kind, facet_key(name)) for kind, name in turn_facets(role, orjson.loads(body))}
    for kind, key in missing:
        conversation.facets.filter(kind=kind, key=key).delete()


def conversation_tags(conversation: Conversation) -> list[str]:
    tags: list[str] = orjson.loads(conversation.tags)
    return tags


def facets_named(*, user_id: int, kind: str) -> list[str]:
    """Return the names of a kind that conversations of the user have, each once whatever its case."""
    named = SearchFacet.objects.filter(user_id=user_id, kind=kind, conversation__deleted_at=None)
    rows = named.values("key").annotate(first=Min("name")).order_by("key")[:MAX_NAMED]
    return [row["first"] for row in rows]


def _plain(name: str) -> str:
    return " ".join(name.replace("\0", " ").split())[:MAX_FACET_CHARS]
