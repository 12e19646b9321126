"""What search promises, on whichever database: one scenario for SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from chat.conversations import services, turns
from chat.conversations.facets import Filters
from chat.conversations.models import Conversation
from chat.conversations.search import texts_matching

TEXTS = {
    "plain": "The quick brown fox, jumping over foo_bar and http://example.com/path",
    "accents": "Ein Café in Zürich: naïve ÉTÉ",
    "chinese": "我在东京大学学习日本語です",
    "code": 'def f(x): return x**2  # O\'Reilly; DROP TABLE 100% "quoted" & | ! <-> :*',
    "long": "filler " * 20_000 + "beyond",
}
FOUND = {
    "quick": ["plain"],
    "QUICK fox": ["plain"],
    "jump": ["plain"],
    "fox quick": ["plain"],
    "brow fox": [],
    "foo": ["plain"],
    "bar": ["plain"],
    "foo_bar": ["plain"],
    "example": ["plain"],
    "cafe": ["accents"],
    "ZURICH": ["accents"],
    "été naive": ["accents"],
    "东京": ["chinese"],
    "京东": [],
    "日本語": ["chinese"],
    "o'reilly": ["code"],
    '"quoted"': ["code"],
    "AND": ["code", "plain"][1:],
    "drop table": ["code"],
    "* :* <-> & | ! ' \" ( ) -": [],
    "' OR 1=1": [],
    "filler": ["long"],
    "beyond": [],
    "absent": [],
}


def check_search(user_id: int, other_id: int) -> None:
    """Save texts of one user and check what both users find, after each kind of change."""

    def found(query: str, user: int = user_id) -> list[str]:
        texts = texts_matching(user_id=user, query=query, before=2**62, limit=50)
        return sorted({text.conversation.public_id for text in texts if text.turn is not None})

    for name, text in TEXTS.items():
        services.conversation_create(user_id=user_id, public_id=name, fields={"title": f"title-{name}"})
        sent = turns.TurnSent("1", "", "user", "ended", {"content": text})
        turns.turn_put(user_id=user_id, conversation_id=name, sent=sent)
    assert {query: found(query) for query in FOUND} == FOUND
    assert found("quick", other_id) == []

    hits = services.conversations_search(user_id=user_id, query="title", limit=2, before=2**62)
    more = services.conversations_search(user_id=user_id, query="title", limit=9, before=hits[-1].position)
    names = [hit.text.conversation.public_id for hit in (*hits, *more)]
    assert names == list(reversed(TEXTS)), "the latest first, by pages"

    services.conversation_change(user_id=user_id, public_id="plain", version=1, fields={"title": "renamed"})
    texts = texts_matching(user_id=user_id, query="renamed", before=2**62, limit=9)
    assert [text.conversation.public_id for text in texts] == ["plain"]
    assert texts_matching(user_id=user_id, query="title plain", before=2**62, limit=9) == []

    begun = turns.TurnSent("2", "1", "assistant", "begun", {"content": "draft"})
    turns.turn_put(user_id=user_id, conversation_id="plain", sent=begun)
    ended = turns.TurnSent("2", "1", "assistant", "ended", {"content": "finished"})
    turns.turn_put(user_id=user_id, conversation_id="plain", sent=ended)
    assert (found("draft"), found("finished")) == ([], ["plain"])
    turns.turn_drop(user_id=user_id, conversation_id="plain", public_id="2")
    assert found("finished") == []

    check_filters(user_id, other_id)

    services.conversations_delete(user_id=user_id, public_ids=["plain"])
    assert found("quick") == []
    services.conversations_restore(user_id=user_id, public_ids=["plain"])
    assert found("quick") == ["plain"]


def check_filters(user_id: int, other_id: int) -> None:
    """Tag two chats and check what filters leave, with words and without."""
    plain = Conversation.objects.get(user_id=user_id, public_id="plain")
    services.conversation_change(
        user_id=user_id, public_id="plain", version=plain.version, fields={"tags": ["Ünï", "both"]}
    )
    services.conversation_change(user_id=user_id, public_id="code", version=1, fields={"tags": ["BOTH"]})
    now = timezone.now()
    hour = timedelta(hours=1)
    for filters, expected in (
        (Filters(tag="both"), ["code", "plain"]),
        (Filters(tag="ünï"), ["plain"]),
        (Filters(tag="both", has_tools=True), []),
        (Filters(tag="both", since=now - hour, until=now + hour), ["code", "plain"]),
        (Filters(tag="both", until=now - hour), []),
    ):
        texts = texts_matching(user_id=user_id, query="qu", before=2**62, limit=50, filters=filters)
        assert sorted({text.conversation.public_id for text in texts if text.turn}) == expected, filters
        page, _ = services.conversations_page(user_id=user_id, view="all", limit=9, filters=filters)
        assert sorted(conversation.public_id for conversation in page) == expected, filters
        assert services.conversations_page(user_id=other_id, view="all", limit=9, filters=filters) == ([], False)
