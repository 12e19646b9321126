"""Full-text search over a user's titles and turns: FTS5 on SQLite, `tsvector` with a GIN index on PostgreSQL.

Texts are reduced to words here, in the same way for both databases: without case and accents, of letters and digits.
Letters of scripts without spaces between words are words of their own, and what is asked is then a phrase.
The databases keep their indexes by themselves (triggers, an index of an expression; migration 0016).
https://www.sqlite.org/fts5.html, https://www.postgresql.org/docs/current/textsearch.html
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from django.db import connection

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

SQLITE = """
    SELECT found.id FROM chat_search
    JOIN chat_searchtext found ON found.id = chat_search.rowid
    JOIN chat_conversation chat ON chat.id = found.conversation_id
    WHERE chat_search MATCH %s AND found.user_id = %s AND found.id < %s AND chat.deleted_at IS NULL
    ORDER BY chat_search.rowid DESC LIMIT %s"""
POSTGRESQL = """
    SELECT found.id FROM chat_searchtext found
    JOIN chat_conversation chat ON chat.id = found.conversation_id
    WHERE to_tsvector('simple', found.words) @@ to_tsquery('simple', %s) AND found.user_id = %s AND found.id < %s
    AND chat.deleted_at IS NULL
    ORDER BY found.id DESC LIMIT %s"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database asks. `chat_search` is the name of SQLite's index."""

    sql: str
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
    "sqlite": Dialect(SQLITE, " ", '"{}"', '"{}" *', " AND ", 'user_id : "{user_id}" AND words : ({0})'),
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


def texts_matching(*, user_id: int, query: str, before: int, limit: int) -> list[SearchText]:
    """Return the latest texts of a user that have all words of a query, with ids below `before`, latest first."""
    phrases = query_phrases(query)
    if not phrases:
        return []
    dialect = DIALECTS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(dialect.sql, [dialect.asked(phrases, user_id=user_id), user_id, before, limit])
        ids = [row[0] for row in cursor.fetchall()]
    found = SearchText.objects.select_related("conversation", "turn").in_bulk(ids)
    return [found[pk] for pk in ids if pk in found]
