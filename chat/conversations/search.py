"""Full-text search over a user's titles and turns: FTS5 on SQLite, `tsvector` with a GIN index on PostgreSQL.

Texts are reduced to words here, in the same way for both databases: without case and accents, of letters and digits.
Letters of scripts without spaces between words are words of their own, and what is asked is then a phrase.
The databases keep their indexes by themselves (triggers, a generated column; migrations 0016 and 0017).

Of a common word PostgreSQL's index gives all texts, to be sorted, and of a rare one a walk from the latest text would
read them all. So the latest ones are walked first, and the index is asked if they give too few.
https://www.sqlite.org/fts5.html, https://www.postgresql.org/docs/current/textsearch.html
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from django.db import connection

from chat.conversations.facets import Filters
from chat.conversations.models import SearchText

MAX_SEARCHED_CHARS = 100_000
"""Of a turn; what follows is not found."""
MAX_QUERY_WORDS = 16
MIN_BEGINNING_CHARS = 2
"""Of the beginning of a word; SQLite has an index for those of two and three letters."""
SPACELESS = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff])"
)
NO_WORD = re.compile(r"[\W_]+")

LATEST_FITTING = "SELECT MAX(found.id) FROM chat_searchtext found WHERE TRUE {filters}"
"""Where the walk begins: the conversations that fit may be old, and a word in all texts."""
# NOTE: CROSS JOIN keeps the order. To ask the index for each text of the conversations that fit took seconds.
SQLITE = """
    SELECT found.id FROM chat_search
    CROSS JOIN chat_searchtext found CROSS JOIN chat_conversation chat
    WHERE found.id = chat_search.rowid AND chat.id = found.conversation_id AND chat_search MATCH %(query)s
    AND found.user_id = %(user_id)s AND chat_search.rowid < %(before)s
    AND chat.deleted_at IS NULL {filters}
    ORDER BY chat_search.rowid DESC LIMIT %(limit)s"""
NUM_LATEST = 2_000
"""The texts that are walked."""
MATCHES = "vector @@ (to_tsquery('simple', %(query)s) && %(owner)s::tsquery)"
# NOTE: with `user_id = …` a planner may walk the texts of all users by their ids; this order has one index alone.
POSTGRESQL_LATEST = f"""
    WITH latest AS MATERIALIZED (
        SELECT id, conversation_id, vector FROM chat_searchtext
        WHERE user_id >= %(user_id)s AND (user_id, id) < (%(user_id)s, %(before)s)
        ORDER BY user_id DESC, id DESC LIMIT %(num_latest)s
    ), found AS MATERIALIZED (SELECT id, conversation_id FROM latest WHERE {MATCHES})"""
POSTGRESQL_ALL = f"""
    WITH found AS MATERIALIZED (
        SELECT id, conversation_id FROM chat_searchtext
        WHERE {MATCHES} AND user_id = %(user_id)s AND id < %(before)s
    )"""
POSTGRESQL_FOUND = """
    SELECT found.id FROM found JOIN chat_conversation chat ON chat.id = found.conversation_id
    WHERE chat.deleted_at IS NULL {filters} ORDER BY found.id DESC LIMIT %(limit)s"""
POSTGRESQL = (POSTGRESQL_LATEST + POSTGRESQL_FOUND, POSTGRESQL_ALL + POSTGRESQL_FOUND)


NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database asks. `chat_search` is the name of the index."""

    statements: tuple[str, ...]
    """One after the other, until one gives as many texts as are asked for."""
    phrase_join: str
    phrase: str
    last_phrase: str
    and_join: str
    query: str

    def asked(self, phrases: list[list[str]], *, user_id: int) -> str:
        """Return the query for all phrases; the last word may go on, if it is long enough."""
        texts = [self.phrase_join.join(words) for words in phrases]
        last = self.last_phrase if len(phrases[-1][-1]) >= MIN_BEGINNING_CHARS else self.phrase
        parts = [self.phrase.format(text) for text in texts[:-1]] + [last.format(texts[-1])]
        return self.query.format(self.and_join.join(parts), user_id=user_id)


DIALECTS = {
    "sqlite": Dialect((SQLITE,), " ", '"{}"', '"{}" *', " AND ", 'user_id : "{user_id}" AND words : ({0})'),
    "postgresql": Dialect(POSTGRESQL, " <-> ", "({})", "({}:*)", " & ", "{0}"),
}


def words_of(text: str) -> str:
    """Return the words of a text, separated by single spaces."""
    plain = unicodedata.normalize("NFKD", text[:MAX_SEARCHED_CHARS])
    plain = "".join(char for char in plain if not unicodedata.combining(char)) if not plain.isascii() else plain
    return NO_WORD.sub(" ", SPACELESS.sub(r" \1 ", plain.casefold())).strip()[:MAX_SEARCHED_CHARS]


def query_phrases(query: str) -> list[list[str]]:
    """Return the words that are asked for, those of one word of the query together."""
    phrases = [words.split() for words in map(words_of, query.split()) if words]
    return phrases[:MAX_QUERY_WORDS]


def filters_sql(filters: Filters) -> tuple[str, dict[str, Any]]:
    """Return conditions on `found`, and the values that they name. Each is a set that the database makes once."""
    sets: list[str] = []
    values: dict[str, Any] = {}
    for number, (kind, key) in enumerate(filters.facets):
        facet = f"kind = %(kind_{number})s AND key = %(key_{number})s"
        sets.append(f"conversation_id FROM chat_searchfacet WHERE user_id = %(user_id)s AND {facet}")
        values |= {f"kind_{number}": kind, f"key_{number}": key}
    bounds = {"since": (filters.since, ">="), "until": (filters.until, "<")}
    if used := {name: (at, sign) for name, (at, sign) in bounds.items() if at is not None}:
        within = " AND ".join(f"updated_at {sign} %({name})s" for name, (_, sign) in used.items())
        sets.append(f"id FROM chat_conversation WHERE user_id = %(user_id)s AND {within}")
        values |= {name: connection.ops.adapt_datetimefield_value(at) for name, (at, _) in used.items()}
    return " ".join(f"AND found.conversation_id IN (SELECT {one})" for one in sets), values


def texts_matching(
    *, user_id: int, query: str, before: int, limit: int, filters: Filters = NO_FILTERS
) -> list[SearchText]:
    """Return the latest texts of a user that have all words of a query, with ids below `before`, latest first.

    `filters` are about their conversations.
    """
    ids = text_ids_matching(user_id=user_id, query=query, before=before, limit=limit, filters=filters)
    found = SearchText.objects.select_related("conversation", "turn").in_bulk(ids)
    return [found[pk] for pk in ids if pk in found]


def text_ids_matching(*, user_id: int, query: str, before: int, limit: int, filters: Filters) -> list[int]:
    """Return the ids of the texts that `texts_matching` finds."""
    phrases = query_phrases(query)
    if not phrases:
        return []
    dialect = DIALECTS[connection.vendor]
    conditions, values = filters_sql(filters)
    asked = {
        "query": dialect.asked(phrases, user_id=user_id),
        "owner": f"'/{user_id}'",
        "num_latest": NUM_LATEST,
        "user_id": user_id,
        "before": before,
        "limit": limit,
        **values,
    }
    ids: list[int] = []
    with connection.cursor() as cursor:
        if conditions:
            cursor.execute(LATEST_FITTING.format(filters=conditions), asked)
            (latest,) = cursor.fetchone()
            if latest is None:
                return []
            asked["before"] = min(before, latest + 1)
        for statement in dialect.statements:
            cursor.execute(statement.format(filters=conditions), asked)
            ids = [row[0] for row in cursor.fetchall()]
            if len(ids) >= limit:
                break
    return ids
