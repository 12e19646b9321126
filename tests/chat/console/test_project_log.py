"""What a project lets the request log keep: its form, and the test box of its redaction."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.access.accounts import playground_caller
from chat.access.keys import key_caller, key_create
from chat.models import AuditEntry, Project
from tests.people import member


def saved(client: Client, project: Project, **fields: Any) -> Any:
    return client.post(reverse("admin:chat_project_change", args=[project.pk]), {"name": project.name, **fields})


def test_a_project_keeps_no_texts_until_it_says_so(admin_client: Client, project: Project) -> None:
    key, _ = key_create(project=project, name="k")
    assert not key_caller(public_id=key.public_id).keeps_texts
    fields = {"keeps_api_texts": "on", "redaction_patterns": "PAT-\\d+\n", "log_days": "5", "text_days": "3"}
    assert saved(admin_client, project, **fields).status_code == 302
    project.refresh_from_db()
    assert (project.redaction_patterns, project.log_days, project.text_days) == (["PAT-\\d+"], 5, 3)
    assert key_caller(public_id=key.public_id).keeps_texts
    entry = AuditEntry.objects.filter(action="project.change").first()
    assert entry is not None
    assert entry.after["keeps_api_texts"] is True


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"redaction_patterns": "a\n("}, "Pattern 2 cannot be used: it is no regular expression"),
        ({"redaction_patterns": "x*"}, "it matches the empty text"),
        ({"redaction_patterns": "\n".join("ab" for _ in range(21))}, "21 patterns; at most 20 are allowed."),
        ({"log_days": "0"}, "greater than or equal to 1"),
        ({"text_days": "99999"}, "less than or equal to 3650"),
        ({"text_days": "-1"}, "greater than or equal to 1"),
        ({"keeps_chat_texts": "on"}, "set LIGHTCONE_CHAT_ADMIN_READ."),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    admin_client: Client, project: Project, fields: dict[str, str], said: str
) -> None:
    answer = saved(admin_client, project, **fields)
    assert answer.status_code == 200
    assert said in answer.text
    project.refresh_from_db()
    assert (project.redaction_patterns, project.log_days, project.text_days) == ([], None, 7)


def test_texts_of_chats_need_that_administrators_may_read_chats(project: Project, settings: Any) -> None:
    ann = member("ann", org=project.org)
    Project.objects.update(keeps_chat_texts=True)
    assert not playground_caller(user=ann).keeps_texts
    settings.LIGHTCONE_CHAT_ADMIN_READ = True
    assert playground_caller(user=ann).keeps_texts


def test_the_test_box_shows_what_would_be_stored_and_stores_nothing(admin_client: Client, project: Project) -> None:
    page = reverse("admin:chat_project_redaction", args=[project.pk])
    answer = admin_client.post(page, {"text": "I am a@b.org, PAT-7 <b>", "patterns": "PAT-\\d"})
    assert "I am [e-mail], [redacted] &lt;b&gt;" in answer.text
    slow = admin_client.post(page, {"text": "a" * 200 + "b", "patterns": "(?:a|aa)+$"})
    assert "These patterns need too long" in slow.text
    bad = admin_client.post(page, {"text": "x", "patterns": "("})
    assert "Pattern 1 cannot be used" in bad.text
    project.refresh_from_db()
    assert project.redaction_patterns == []
