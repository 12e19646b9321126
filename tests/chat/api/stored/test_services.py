"""Stored answers: one per id, finished once, limited to their project, deleted at their expiry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from chat.api.stored import services as stored
from chat.api.stored.services import (
    AnswerUnknown,
    StoredKind,
    StoredState,
    answer_delete,
    answer_drop,
    answer_end,
    answer_find,
    answer_keep,
    answer_label,
    answer_of_run,
    answers_have_room,
    answers_page,
    answers_prune,
    answers_unfinished,
)
from chat.models import StoredAnswer
from chat.relay.state.keys import run_id_create

pytestmark = pytest.mark.django_db
PLACE: dict[str, Any] = {"project_id": 1, "kind": StoredKind.CHAT}


def keep(public_id: str = "a", **changes: Any) -> str:
    run_id = changes.pop("run_id", None) or run_id_create()
    values = {
        "model": "m",
        "metadata": {},
        "request": {"text": "\0\u2028"},
        "created_at": datetime.now(UTC),
        "answer": b"{}",
        **PLACE,
    }
    answer_keep(run_id=run_id, public_id=public_id, **{**values, **changes})
    return run_id


def test_an_answer_is_stored_until_its_expiry(settings):
    settings.LIGHTCONE_STORE_DAYS = 3
    run_id = keep()
    row = answer_find(public_id="a", **PLACE)
    assert (row.run_id.hex, row.state, bytes(row.answer)) == (run_id, StoredState.FINISHED, b"{}")
    assert timedelta(days=2.9) < row.expires_at - timezone.now() < timedelta(days=3.1)
    with pytest.raises(AnswerUnknown):
        answer_find(project_id=2, kind=StoredKind.CHAT, public_id="a")
    with pytest.raises(AnswerUnknown):
        answer_find(project_id=1, kind=StoredKind.RESPONSE, public_id="a")


def has_room() -> bool:
    """Ask for room as a process without a cached answer."""
    stored._room.clear()
    return async_to_sync(answers_have_room)(project_id=1)


def test_the_number_of_answers_per_project_is_limited(settings):
    """One key could fill the disk with stored answers in hours."""
    settings.LIGHTCONE_MAX_PROJECT_ANSWERS = 2
    keep("a")
    keep("b", project_id=2)
    assert has_room()
    keep("c")
    assert not has_room()
    answer_delete(public_id="a", **PLACE)
    assert has_room()


def test_the_bytes_of_answers_per_project_are_limited(settings):
    settings.LIGHTCONE_MAX_PROJECT_ANSWER_BYTES = 100
    keep("a", request={"text": "x" * 40}, answer=b"")
    run_id = keep("b", request={}, answer=b"")
    assert has_room()
    assert answer_end(run_id=run_id, state=StoredState.FINISHED, answer=b"x" * 60)
    assert not has_room()


def test_a_cached_lack_of_room_ends_with_a_deletion(settings):
    settings.LIGHTCONE_MAX_PROJECT_ANSWERS = 1
    keep("a")
    assert not has_room()
    answer_delete(public_id="a", **PLACE)
    assert async_to_sync(answers_have_room)(project_id=1)


def test_a_later_answer_replaces_one_of_the_same_id_project_and_kind():
    keep()
    keep(project_id=2)
    keep(kind=StoredKind.RESPONSE)
    run_id = keep()
    assert answer_find(public_id="a", **PLACE).run_id.hex == run_id
    assert StoredAnswer.objects.count() == 3


def test_an_answer_is_finished_once():
    run_id = keep(answer=b"")
    assert answers_unfinished() == [run_id]
    assert answer_end(run_id=run_id, state=StoredState.FAILED, answer=b"1")
    assert not answer_end(run_id=run_id, state=StoredState.FINISHED, answer=b"2")
    row = answer_of_run(run_id=run_id)
    assert row is not None
    assert (row.state, bytes(row.answer), row.ended_at is not None) == (StoredState.FAILED, b"1", True)
    assert answers_unfinished() == []
    answer_drop(run_id=run_id)
    assert StoredAnswer.objects.count() == 1


def test_a_dropped_answer_is_deleted():
    answer_drop(run_id=keep(answer=b""))
    assert StoredAnswer.objects.count() == 0


def test_pages_list_finished_answers_by_time():
    """Run ids of one millisecond have no order, so that each answer starts in its own."""
    for second, name in enumerate("abc", start=1_700_000_000):
        keep(name, metadata={"name": name, "x__y": "z"}, model=name, run_id=run_id_create(at_s=second))
    keep("unfinished", answer=b"")
    keep("elsewhere", project_id=2)
    assert [row.public_id for row in answers_page(**PLACE)[0]] == ["a", "b", "c"]
    rows, has_more = answers_page(limit=1, after="a", **PLACE)
    assert ([row.public_id for row in rows], has_more) == (["b"], True)
    assert [row.public_id for row in answers_page(after="b", is_ascending=False, **PLACE)[0]] == ["a"]
    assert [row.public_id for row in answers_page(metadata={"name": "b", "x__y": "z"}, **PLACE)[0]] == ["b"]
    assert [row.public_id for row in answers_page(model="c", **PLACE)[0]] == ["c"]
    with pytest.raises(AnswerUnknown):
        answers_page(after="elsewhere", **PLACE)


def test_metadata_and_deletion_are_limited_to_the_project():
    keep()
    assert answer_label(public_id="a", metadata={"k": "v"}, **PLACE).metadata == {"k": "v"}
    for act in (answer_label, answer_delete):
        with pytest.raises(AnswerUnknown):
            act(project_id=2, kind=StoredKind.CHAT, public_id="a", **({"metadata": {}} if act is answer_label else {}))
    assert answer_delete(public_id="a", **PLACE).metadata == {"k": "v"}
    assert StoredAnswer.objects.count() == 0


def test_expired_answers_are_hidden_and_then_deleted():
    run_ids = [keep(name) for name in "abc"]
    StoredAnswer.objects.filter(run_id__in=[UUID(hex=run_id) for run_id in run_ids[:2]]).update(
        expires_at=timezone.now()
    )
    assert [row.public_id for row in answers_page(**PLACE)[0]] == ["c"]
    assert answers_prune(before=timezone.now(), batch_size=1) == 2
    assert StoredAnswer.objects.count() == 1


def test_labelling_a_concurrently_deleted_answer_fails(monkeypatch):
    keep()
    row = answer_find(public_id="a", **PLACE)
    answer_delete(public_id="a", **PLACE)
    monkeypatch.setattr("chat.api.stored.services.answer_find", lambda **_: row)
    with pytest.raises(AnswerUnknown):
        answer_label(public_id="a", metadata={}, **PLACE)


def test_a_page_does_not_load_requests(django_assert_num_queries):
    keep()
    with django_assert_num_queries(2) as queries:
        [row], _ = answers_page(**PLACE)
        assert row.answer
    assert not any('"request"' in query["sql"] for query in queries.captured_queries)


def test_ids_with_nul_are_not_looked_up(django_assert_num_queries):
    """PostgreSQL accepts no NUL in texts, but a URL may contain one: such a request gave a 500."""
    with django_assert_num_queries(0):
        for ask in (lambda: answer_find(public_id="a\0", **PLACE), lambda: answers_page(after="a\0", **PLACE)):
            with pytest.raises(AnswerUnknown):
                ask()
        assert answers_page(model="m\0", **PLACE) == ([], False)
