"""Files are read as written; those of other projects, unfinished and expired ones are hidden."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from chat.batches.files import (
    FileAbout,
    FileInUse,
    FileMissing,
    FileWriter,
    QuotaExceeded,
    file_begin,
    file_delete,
    file_get,
    files_page,
    files_prune,
)
from chat.batches.models import CHUNK_BYTES
from chat.batches.services import BatchOrder, batch_create
from chat.errors import ApiError
from chat.models import Batch, FileChunk, Org, Project, ProjectFile
from tests.chat.batches.stored_files import file_chunks, file_create

pytestmark = pytest.mark.django_db


def about(project: Project, **fields: Any) -> FileAbout:
    return FileAbout(
        **{"project_id": project.pk, "key_public_id": "k", "filename": "a.jsonl", "purpose": "batch", **fields}
    )


def stored(project: Project, content: bytes = b"x", **fields: Any) -> ProjectFile:
    return file_create(about=about(project, **fields), content=content)


def other(project: Project) -> Project:
    return Project.objects.create(org=project.org, name="Other")


@pytest.mark.parametrize("num_bytes", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
def test_content_comes_back_in_full_chunks(project: Project, num_bytes: int) -> None:
    content = (bytes(range(256)) * (num_bytes // 256 + 1))[:num_bytes]
    writer = file_begin(about=about(project), num_bytes=num_bytes)
    writer.write(content[:100])
    writer.write(content[100:])
    file = writer.finish()
    chunks = file_chunks(file)
    assert b"".join(chunks) == content
    assert all(len(chunk) == CHUNK_BYTES for chunk in chunks[:-1])
    assert file_get(project_id=project.pk, public_id=file.public_id).num_bytes == num_bytes


def test_other_projects_see_no_file(project: Project) -> None:
    file = stored(project)
    stranger = other(project).pk
    for act in (file_get, file_delete):
        with pytest.raises(FileMissing):
            act(project_id=stranger, public_id=file.public_id)
    assert files_page(project_id=stranger, limit=10) == ([], False)
    with pytest.raises(ApiError, match="after must be the id of a file of this project"):
        files_page(project_id=stranger, limit=10, after=file.public_id)


def test_unfinished_and_expired_files_are_hidden_and_deleted(project: Project) -> None:
    writer = FileWriter(about(project))
    writer.write(b"half")
    expired = stored(project, lives_s=3600)
    kept = stored(project, purpose="user_data")
    ProjectFile.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
    for file in (writer.file, expired):
        with pytest.raises(FileMissing):
            file_get(project_id=project.pk, public_id=file.public_id)
    assert files_prune(now=timezone.now()) == 1
    assert files_prune(now=timezone.now() + timedelta(days=2)) == 1
    assert list(ProjectFile.objects.all()) == [kept]
    assert set(FileChunk.objects.values_list("file_id", flat=True)) == {kept.pk}


def test_batch_files_expire_and_others_do_not(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_FILE_DAYS = 2
    batch_file = stored(project)
    assert batch_file.expires_at is not None
    assert batch_file.expires_at - batch_file.created_at == timedelta(days=2)
    assert stored(project, purpose="user_data").expires_at is None


def test_a_project_has_a_quota_and_a_refusal_writes_nothing(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES = 10
    stored(project, b"x" * 6)
    with pytest.raises(QuotaExceeded):
        stored(project, b"x" * 5)
    stored(project, b"x" * 4)
    assert sum(file.num_bytes for file in ProjectFile.objects.all()) == 10
    assert ProjectFile.objects.count() == 2
    assert stored(other(project), b"x" * 10).num_bytes == 10


def test_the_number_of_files_per_project_is_limited(project: Project, settings: Any) -> None:
    """The quota limited bytes only, and allowed any number of small files."""
    settings.LIGHTCONE_MAX_PROJECT_FILES = 2
    first, _ = stored(project), stored(project)
    with pytest.raises(QuotaExceeded):
        stored(project)
    file_delete(project_id=project.pk, public_id=first.public_id)
    stored(project)


def test_a_dropped_upload_leaves_nothing(project: Project) -> None:
    writer = file_begin(about=about(project), num_bytes=2 * CHUNK_BYTES)
    writer.write(b"x" * CHUNK_BYTES)
    writer.drop()
    assert ProjectFile.objects.count() == FileChunk.objects.count() == 0


def test_the_input_of_an_open_batch_is_not_deleted(project: Project) -> None:
    file = stored(project)
    order = BatchOrder(
        project_id=project.pk, key_public_id="k", endpoint="/v1/chat/completions", input_file_id=file.public_id
    )
    batch = batch_create(order=order)
    with pytest.raises(FileInUse, match=batch.public_id):
        file_delete(project_id=project.pk, public_id=file.public_id)
    ProjectFile.objects.update(expires_at=timezone.now())
    assert files_prune(now=timezone.now()) == 0
    Batch.objects.update(status="completed")
    assert files_prune(now=timezone.now()) == 1


def test_pages_lead_through_all_files_in_either_order(project: Project) -> None:
    made = [stored(project, purpose="user_data" if number % 3 == 0 else "batch").public_id for number in range(7)]
    for is_ascending, purpose in ((False, ""), (True, ""), (True, "user_data")):
        seen: list[str] = []
        has_more, after = True, ""
        while has_more:
            files, has_more = files_page(
                project_id=project.pk, limit=2, after=after, is_ascending=is_ascending, purpose=purpose
            )
            seen += [file.public_id for file in files]
            after = seen[-1]
        wanted = [name for number, name in enumerate(made) if not purpose or number % 3 == 0]
        assert seen == (wanted if is_ascending else wanted[::-1])


def test_a_hostile_file_name_is_made_storable(project: Project) -> None:
    assert stored(project, filename="a\0\ud800" * 200).filename == ("a\ufffd?" * 200)[:255]
    with pytest.raises(FileMissing):
        file_get(project_id=project.pk, public_id="file-\0")
    assert Org.objects.count() == 1
