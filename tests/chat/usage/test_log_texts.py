"""Texts of requests: kept where the project keeps them, redacted, and without effect on usage."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from chat.models import AuditEntry, Project, RequestLog, RequestText, UsageSum
from chat.usage import log_texts
from chat.usage.log_texts import texts_read
from chat.usage.models import DAY
from chat.usage.services import usage_records_write
from tests.chat.records import record

PLAIN = {"request": {"model": "small", "messages": [{"role": "user", "content": "I am a@b.org, PAT-7"}]}}


def packed(**more: Any) -> bytes:
    return zlib.compress(json.dumps(PLAIN | {"answers": [{"content": "Hello +49 30 1234567"}], **more}).encode())


def sent(project: Project, **fields: Any) -> dict[str, Any]:
    return record(project_id=project.pk, org_id=project.org_id, texts=packed(), **fields)


def test_texts_are_stored_redacted_and_reading_them_is_audited(project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True, redaction_patterns=[r"PAT-\d"])
    usage_records_write([sent(project)])
    log = RequestLog.objects.get()
    assert b"a@b" not in zlib.decompress(bytes(RequestText.objects.get().packed))
    texts = texts_read(log)
    assert texts is not None
    assert texts.request["messages"][0]["content"] == "I am [e-mail], [redacted]"
    assert texts.answers == [{"content": "Hello [phone]"}]
    entry = AuditEntry.objects.get(action="request.read")
    assert (entry.object_id, entry.org_id, entry.project_id) == (log.run_id.hex, project.org_id, project.pk)
    assert "Hello" not in json.dumps([entry.before, entry.after])


@pytest.mark.parametrize(
    ("fields", "dialect", "may_read_chats", "is_kept"),
    [
        ({}, "lightcone", True, False),
        ({"keeps_api_texts": True}, "lightcone", False, True),
        ({"keeps_api_texts": True}, "playground", True, False),
        ({"keeps_chat_texts": True}, "playground", True, True),
        ({"keeps_chat_texts": True}, "playground", False, False),
        ({"keeps_chat_texts": True}, "lightcone", True, False),
        ({"keeps_api_texts": True, "stores_nothing": True}, "lightcone", True, False),
    ],
)
def test_texts_are_kept_as_the_project_says_and_usage_in_any_case(
    project: Project, settings: Any, fields: dict[str, bool], dialect: str, may_read_chats: bool, is_kept: bool
) -> None:
    settings.LIGHTCONE_CHAT_ADMIN_READ = may_read_chats
    Project.objects.filter(pk=project.pk).update(**fields)
    usage_records_write([sent(project, dialect=dialect)])
    assert RequestText.objects.exists() == is_kept
    assert RequestLog.objects.count() == 1
    assert UsageSum.objects.get(length_h=DAY).completion_tokens == 7


def test_a_record_that_comes_twice_has_one_text(project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True)
    one = sent(project)
    assert len(usage_records_write([one])) == 1
    assert usage_records_write([one]) == []
    assert RequestText.objects.count() == 1


def test_texts_that_cannot_be_redacted_in_time_or_read_are_left_out(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True)
    broken = sent(project) | {"texts": b"no zlib"}
    usage_records_write([broken])
    monkeypatch.setattr(log_texts, "BATCH_S", -1)
    usage_records_write([sent(project)])
    assert RequestLog.objects.count() == 2
    assert not RequestText.objects.exists()
    assert "is not kept" in caplog.text
    assert "redaction is too slow" in caplog.text


@pytest.mark.parametrize("patterns", [["PAT-7", "("], ["(?R)"], [7], 7])
def test_a_stored_pattern_that_cannot_be_used_costs_texts_and_no_usage(
    project: Project, caplog: pytest.LogCaptureFixture, patterns: Any
) -> None:
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True, redaction_patterns=patterns)
    other = Project.objects.create(org=project.org, name="other", keeps_api_texts=True)
    usage_records_write([sent(project), sent(other)])
    assert RequestText.objects.get().project_id == other.pk
    assert UsageSum.objects.filter(length_h=DAY).count() == RequestLog.objects.count() == 2
    assert "is not kept" in caplog.text
