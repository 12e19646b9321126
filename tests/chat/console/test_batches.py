"""The pages of files and batches: progress without contents, confirmed cancels and deletions, permissions."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.batches.files import FileAbout
from chat.batches.services import BatchOrder, batch_create
from chat.models import Batch, Org, Project, ProjectFile
from tests.chat.batches.stored_files import file_create
from tests.people import member

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def file(project: Project) -> ProjectFile:
    about = FileAbout(project.pk, "accept0001", EVIL, "batch")
    return file_create(about=about, content=b"the secret content")


@pytest.fixture
def batch(file: ProjectFile, project: Project) -> Batch:
    order = BatchOrder(project.pk, "accept0001", "/v1/chat/completions", file.public_id, metadata={"job": EVIL})
    made = batch_create(order=order)
    errors = [{"code": "x", "line": 3, "message": EVIL, "param": None}]
    Batch.objects.filter(pk=made.pk).update(
        status="in_progress", num_lines=10, num_completed=4, num_failed=1, errors=errors
    )
    made.refresh_from_db()
    return made


def client_of(role: str, **options: Any) -> Client:
    client = Client()
    client.force_login(member("somebody", role, **options))
    return client


def page(client: Client, name: str, *args: Any) -> str:
    answer = client.get(reverse(f"admin:chat_{name}", args=args))
    assert answer.status_code == 200
    return answer.text


def test_pages_show_progress_escaped_and_no_content(admin_client: Client, batch: Batch, file: ProjectFile) -> None:
    texts = [
        page(admin_client, "batch_changelist"),
        page(admin_client, "batch_change", batch.pk),
        page(admin_client, "projectfile_changelist"),
        page(admin_client, "projectfile_change", file.pk),
        page(admin_client, "projectfile_delete", file.pk),
        page(admin_client, "batch_cancel", batch.pk),
    ]
    assert all("4 of 10, 1 failed" in text for text in texts[:2])
    assert not any("secret content" in text or EVIL in text for text in texts)


def test_a_cancel_requires_confirmation(admin_client: Client, batch: Batch) -> None:
    url = reverse("admin:chat_batch_cancel", args=[batch.pk])
    assert "Cancel the batch" in admin_client.get(url).text
    batch.refresh_from_db()
    assert batch.status == "in_progress"
    admin_client.post(url)
    batch.refresh_from_db()
    assert batch.status == "cancelling"
    Batch.objects.update(status="completed")
    answer = admin_client.post(url, follow=True)
    assert "cannot be cancelled any more" in answer.text
    assert url not in answer.text


def test_a_file_is_deleted_unless_a_batch_reads_it(admin_client: Client, batch: Batch, file: ProjectFile) -> None:
    url = reverse("admin:chat_projectfile_delete", args=[file.pk])
    assert batch.public_id in admin_client.post(url, {"post": "yes"}, follow=True).text
    assert ProjectFile.objects.exists()
    Batch.objects.update(status="completed")
    admin_client.post(url, {"post": "yes"})
    assert not ProjectFile.objects.exists()


def test_view_permissions_do_not_allow_changes(batch: Batch, file: ProjectFile) -> None:
    client = client_of("viewer")
    assert reverse("admin:chat_batch_cancel", args=[batch.pk]) not in page(client, "batch_change", batch.pk)
    assert client.post(reverse("admin:chat_batch_cancel", args=[batch.pk])).status_code == 403
    assert client.post(reverse("admin:chat_projectfile_delete", args=[file.pk]), {"post": "yes"}).status_code == 403
    batch.refresh_from_db()
    assert batch.status == "in_progress"
    assert ProjectFile.objects.exists()


def test_change_permissions_allow_a_cancel(batch: Batch, file: ProjectFile) -> None:
    client = client_of("admin")
    client.post(reverse("admin:chat_batch_cancel", args=[batch.pk]))
    batch.refresh_from_db()
    assert batch.status == "cancelling"


def test_batches_of_others_do_not_exist(batch: Batch, file: ProjectFile) -> None:
    client = client_of("admin", org=Org.objects.create(name="Other"))
    for name, row in (("batch_change", batch), ("batch_cancel", batch), ("projectfile_delete", file)):
        assert client.post(reverse(f"admin:chat_{name}", args=[row.pk])).status_code in {302, 403, 404}
    assert batch.public_id not in page(client, "batch_changelist")
    batch.refresh_from_db()
    assert batch.status == "in_progress"
    assert ProjectFile.objects.exists()


def test_filters_and_search_are_exact(admin_client: Client, batch: Batch, file: ProjectFile) -> None:
    for name, query, is_found in (
        ("batch_changelist", f"?q={batch.public_id}", True),
        ("batch_changelist", "?q=batch_other", False),
        ("batch_changelist", "?status=in_progress", True),
        ("batch_changelist", "?status=failed", False),
        ("projectfile_changelist", f"?q={file.public_id}", True),
        ("projectfile_changelist", "?purpose=user_data", False),
        ("projectfile_changelist", "?key=accept0001", True),
    ):
        text = admin_client.get(reverse(f"admin:chat_{name}") + query).text
        wanted = batch.public_id if name.startswith("batch") else file.public_id
        assert (f">{wanted}<" in text) == is_found, query
