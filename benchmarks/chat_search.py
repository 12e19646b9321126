"""Fill a database with conversations of one user and time the search over them.

    python -m benchmarks.chat_search [--chats 50000]

The database is that of DATABASE_URL, or a new one of SQLite in a temporary folder. Texts are drawn from 20,000 words by
Zipf's law, so that the first words are in nearly every chat and the last in a few.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import accumulate

WORDS = [f"w{number}" for number in range(20_000)]
WEIGHTS = list(accumulate(1 / (rank + 1) for rank in range(len(WORDS))))
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
TURNS, WORDS_OF_TURN, REPEATS, AT_ONCE = 4, 60, 15, 500
QUERIES = {
    "in nearly every turn": "w0",
    "two common words": "w0 w1",
    "five common words": "w0 w1 w2 w3 w4",
    "a beginning of two letters": "w1",
    "of three": "w12",
    "of four": "w123",
    "a rare word": "w19000",
    "a common and a rare word": "w0 w19000",
    "no such word": "w0 zebra",
}

MODELS = ("earlier", "later")
"""Of the older and the newer half."""
TAGS = {"rare": 2_500, "every tenth": 10}
"""Each is at every so-manieth chat, at the oldest first."""
FILTERS = {
    "the earlier model": {"model": "earlier"},
    "the later model": {"model": "later"},
    "a rare tag": {"tag": "rare"},
    "a tag at every tenth": {"tag": "every tenth"},
    "the earlier model, a tag and tools": {"model": "earlier", "tag": "every tenth", "has_tools": True},
    "no such tag": {"tag": "nowhere"},
    "the oldest hundredth": {"until": 0.01},
}
FILTERED = ("w0", "w1000", "w19000")
"""A word in nearly every turn, one in every 180th, a rare one."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chats", type=int, default=50_000)
    num_chats = parser.parse_args().chats
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIGHTCONE_DATA_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        _measure(num_chats)


def _measure(num_chats: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection

    from chat.conversations.facets import Filters, facets_named
    from chat.conversations.services import conversations_page, conversations_search

    users = [User.objects.create_user(f"user-{time.time_ns()}-{name}").pk for name in ("a", "b")]
    started = time.perf_counter()
    for user_id in users:
        _fill(user_id, num_chats)
    took_s = time.perf_counter() - started
    print(f"{connection.vendor}: {num_chats} chats of {TURNS} turns for each of two users; filled in {took_s:.0f} s")
    for name, query in QUERIES.items():
        _time(name, lambda query=query: conversations_search(user_id=users[0], query=query, limit=20, before=2**62))
    _time("a page of the history", lambda: conversations_page(user_id=users[0], limit=50)[0])
    _time("the models to choose from", lambda: facets_named(user_id=users[0], kind="model"))
    for name, fields in FILTERS.items():
        filters = Filters(**{**fields, **({"until": _at(fields["until"], num_chats)} if "until" in fields else {})})
        _time(
            f"{name}, no words",
            lambda filters=filters: conversations_page(user_id=users[0], view="all", limit=50, filters=filters)[0],
        )
        for query in FILTERED:
            _time(
                f"{name}, {query}",
                lambda query=query, filters=filters: conversations_search(
                    user_id=users[0], query=query, limit=20, before=2**62, filters=filters
                ),
            )


def _at(part: float, num_chats: int) -> datetime:
    return FIRST + timedelta(seconds=part * num_chats)


def _fill(user_id: int, num_chats: int) -> None:
    """Write rows as the services do, many at once."""
    from django.db import transaction

    from chat.conversations.search import words_of
    from chat.models import Conversation, SearchFacet, SearchText, Turn

    draw = random.Random(user_id)  # noqa: S311  (no secret)
    for begin in range(0, num_chats, AT_ONCE):
        with transaction.atomic():
            names = [f"chat-{number}" for number in range(begin, min(num_chats, begin + AT_ONCE))]
            chats = Conversation.objects.bulk_create(
                Conversation(user_id=user_id, public_id=name, updated_at=FIRST + timedelta(seconds=begin + number))
                for number, name in enumerate(names)
            )
            facets = [
                (chat, facet)
                for number, chat in enumerate(chats, begin)
                for facet in [
                    ("model", MODELS[number * 2 >= num_chats]),
                    *(("tag", tag) for tag, each in TAGS.items() if number % each == 0),
                    *([("tools", "")] if number % 3 == 0 else []),
                ]
            ]
            SearchFacet.objects.bulk_create(
                SearchFacet(user_id=user_id, conversation=chat, kind=kind, key=name, name=name)
                for chat, (kind, name) in facets
            )
            texts = [
                (chat, n, " ".join(draw.choices(WORDS, cum_weights=WEIGHTS, k=WORDS_OF_TURN)))
                for chat in chats
                for n in range(TURNS)
            ]
            turns = Turn.objects.bulk_create(
                Turn(
                    conversation=chat,
                    public_id=f"t{n}",
                    parent=f"t{n - 1}" if n else "",
                    role="user",
                    state="ended",
                    body=json.dumps({"content": text}),
                )
                for chat, n, text in texts
            )
            SearchText.objects.bulk_create(
                SearchText(user_id=user_id, conversation=chat, turn=turn, words=words_of(text))
                for (chat, _, text), turn in zip(texts, turns, strict=True)
            )


def _time(name: str, act: object) -> None:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        found = act()  # type: ignore[operator]
        times.append((time.perf_counter() - started) * 1000)
    print(f"  {name}: first {times[0]:.1f} ms, median {statistics.median(times):.1f} ms, {len(found)} found")


if __name__ == "__main__":
    main()
