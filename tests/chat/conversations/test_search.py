"""Full-text search on SQLite and over HTTP. tests/site/serve has PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from chat.conversations.search import words_of
from chat.conversations.views import snippet
from chat.models import SearchText
from tests.chat.conversations.conftest import Page
from tests.chat.conversations.searching import check_search
from tests.people import member


@pytest.mark.django_db
def test_search_keeps_in_step_with_what_is_saved(django_user_model: Any) -> None:
    ann, bob = (member(name) for name in ("ann", "bob"))
    check_search(ann.pk, bob.pk)
    ann.delete()
    assert not SearchText.objects.exists()
    with connection.cursor() as cursor:  # raises if the index is out of step with the texts
        cursor.execute("INSERT INTO chat_search (chat_search, rank) VALUES ('integrity-check', 1)")


def test_hits_name_their_turn_and_show_the_place(ann: Page) -> None:
    ann.open("a", title="Trip")
    ann.ask("a", "1", "x" * 300 + " we go to Lisbon in " + "spring " * 50)
    status, answer = ann("GET", "search", QUERY_STRING="q=lisb")
    (hit,) = answer["data"]
    assert (hit["conversation"]["title"], hit["turn"], hit["role"]) == ("Trip", "1", "user")
    assert hit["snippet"].startswith("…x")
    assert "we go to Lisbon in spring" in hit["snippet"]
    assert hit["snippet"].endswith("…")
    assert answer["before"] is None
    assert ann("GET", "search", QUERY_STRING="q=trip")[1]["data"][0]["turn"] is None


@pytest.mark.parametrize(
    ("query", "param"),
    [("", "q"), ("q=", "q"), ("q=" + "x" * 201, "q"), ("q=a&limit=0", "limit"), ("q=a&page=2", "page")],
)
def test_a_bad_search_is_refused_by_its_field(ann: Page, query: str, param: str) -> None:
    status, answer = ann("GET", "search", QUERY_STRING=query)
    assert (status, answer["error"]["param"]) == (400, param)


@given(st.text(max_size=50))
@pytest.mark.django_db
def test_any_text_has_words_that_a_query_can_hold(text: str) -> None:
    words = words_of(text)
    assert words_of(words).split() == words.split()
    assert all(word.isalnum() for word in words.split())
    snippet(text, text)
