"""Messages attach files of their project by id: their contents reach the worker, and all else is refused by name."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta

import pytest
from channels.db import database_sync_to_async
from django.utils import timezone

from chat.api import completions
from chat.api.answering import images
from chat.api.answering.attached import attachments_forgotten
from chat.batches import attached
from chat.batches.attached import FileRoom
from chat.batches.files import FileAbout
from chat.batches.models import CHUNK_BYTES
from chat.errors import ApiError
from chat.models import FileChunk, Org, Project, ProjectFile
from tests.chat.api.conftest import post
from tests.chat.batches.stored_files import file_create

OWN, FOREIGN = 1, 2
MIB = 1 << 20
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(128))


@pytest.fixture
async def projects(transactional_db, scripted):
    """The project of the scripted key, and another."""

    def create() -> None:
        org = Org.objects.create(pk=1, name="Acme")
        for pk in (OWN, FOREIGN):
            Project.objects.create(pk=pk, org=org, name=f"Project {pk}")

    await database_sync_to_async(create)()


async def kept(content: bytes = b"kept text", *, purpose="user_data", project_id=OWN, filename="kept.txt") -> str:
    about = FileAbout(project_id, "key", filename, purpose)
    return (await database_sync_to_async(file_create)(about=about, content=content)).public_id


def part(**file):
    return {"type": "file", "file": file}


async def asked(api, *parts):
    return await post(api, messages=[{"role": "user", "content": [{"type": "text", "text": "Sum up."}, *parts]}])


async def refused(api, *parts) -> dict:
    answer = await asked(api, *parts)
    assert answer.status_code == 400
    return answer.json()["error"]


@pytest.mark.parametrize("purpose", ["user_data", "assistants"])
async def test_a_file_of_the_project_reaches_the_worker_under_its_name(api, scripted, projects, purpose):
    content = bytes(range(256)) * (CHUNK_BYTES // 256) + b"end"
    file_id = await kept(content, purpose=purpose)
    assert (await asked(api, part(file_id=file_id))).status_code == 200
    ((message,),) = [request.messages for request in scripted.requests]
    sent = {"file_data": base64.b64encode(content).decode(), "filename": "kept.txt"}
    assert message["content"][1] == {"type": "file", "file": sent, "param": "messages.0.content.1.file"}


async def test_a_filename_of_the_part_wins_and_null_fields_count_as_absent(api, scripted, projects):
    file_id = await kept(filename="a\tb.txt")
    await asked(api, part(file_id=file_id, filename="mine.csv", file_data=None), part(file_id=file_id, filename=None))
    content = scripted.requests[0].messages[0]["content"]
    assert [part["file"]["filename"] for part in content[1:]] == ["mine.csv", "a b.txt"]


async def test_files_count_until_the_answer_and_their_bytes_go_with_the_start(api, scripted, projects, monkeypatch):
    runs, counted = [], []
    start = completions.run_start

    async def noting(*arguments, **options):
        runs.append(await start(*arguments, **options))
        counted.append(attached.room.num_bytes)
        return runs[-1]

    monkeypatch.setattr(completions, "run_start", noting)
    await asked(api, part(file_id=await kept()))
    assert (counted, attached.room.num_bytes) == ([9], 0)
    assert base64.b64encode(b"kept text").decode() not in str(runs[0].generation)


@pytest.mark.parametrize("kind", ["image", "video", "audio", "file"])
def test_a_run_that_was_started_holds_no_contents(kind):
    held = {"file": {"file_data": "SGVsbG8="}} if kind == "file" else {"data": "SGVsbG8="}
    messages = ({"role": "user", "content": [{"type": kind, "param": "p", **held}]}, {"role": "user", "content": "Hi"})
    forgotten = attachments_forgotten(messages)
    assert "SGVsbG8=" not in str(forgotten)
    assert forgotten[0]["content"][0]["type"] == kind


async def test_files_of_a_request_that_is_refused_count_no_longer(api, scripted, projects):
    file_id = await kept()
    await refused(api, part(file_id=file_id), part(file_id="file-none"))
    scripted.refusal = ApiError("overloaded", "Full.")
    assert (await asked(api, part(file_id=file_id))).status_code == 503
    assert attached.room.num_bytes == 0


@pytest.mark.parametrize(
    ("file", "param", "words"),
    [
        ({"file_id": "file-none"}, "file.file_id", "purpose user_data"),
        ({"file_id": "file\0"}, "file.file_id", "must be the id of a file"),
        ({"file_id": 5}, "file.file_id", "must be a string"),
        ({"file_id": ""}, "file.file_id", "must be the id of a file"),
        ({"file_id": "file-1", "file_data": "eA=="}, "file", "leave the others out"),
        ({"file_id": "file-1", "filename": 5}, "file", "string as filename"),
        ({"file_id": None}, "file", "file_data"),
        ({}, "file", "file_id"),
    ],
    ids=str,
)
async def test_a_part_that_names_no_file_is_refused_by_its_place(api, projects, file, param, words):
    error = await refused(api, part(**file))
    assert error["param"] == f"messages.0.content.1.{param}"
    assert words in error["message"]


@pytest.mark.parametrize("how", ["foreign", "batch", "batch_output", "expired", "incomplete", "deleted"])
async def test_a_file_that_may_not_be_attached_is_refused(api, projects, how):
    purpose = how if how.startswith("batch") else "user_data"
    file_id = await kept(purpose=purpose, project_id=FOREIGN if how == "foreign" else OWN)
    rows = ProjectFile.objects.filter(public_id=file_id)
    changes = {"expired": {"expires_at": timezone.now() - timedelta(seconds=1)}, "incomplete": {"is_complete": False}}
    if how in changes:
        await rows.aupdate(**changes[how])
    if how == "deleted":
        await api.delete(f"/v1/files/{file_id}")
    error = await refused(api, part(file_id=file_id))
    assert error["param"] == "messages.0.content.1.file.file_id"
    assert (f"has purpose {how}" if how.startswith("batch") else "must be the id of a file") in error["message"]


async def test_sizes_are_refused_before_a_byte_is_read(api, projects, settings, monkeypatch):
    def unread(**_):
        raise AssertionError("the content was read")

    monkeypatch.setattr(attached, "file_content", unread)
    large = await kept()
    await ProjectFile.objects.filter(public_id=large).aupdate(num_bytes=10 * MIB + 1)
    assert "at most 10485760 bytes, got 10485761" in (await refused(api, part(file_id=large)))["message"]
    many = [await kept() for _ in range(4)]
    await ProjectFile.objects.filter(public_id__in=many).aupdate(num_bytes=10 * MIB)
    monkeypatch.setattr(attached, "file_content", empty_content)
    error = await refused(api, *(part(file_id=file_id) for file_id in many))
    assert "above 33554432 bytes" in error["message"]


async def empty_content(**_):
    for chunk in ():
        yield chunk


async def test_a_file_that_is_named_often_counts_each_time(api, projects, monkeypatch):
    file_id = await kept()
    await ProjectFile.objects.filter(public_id=file_id).aupdate(num_bytes=10 * MIB)
    monkeypatch.setattr(attached, "file_content", empty_content)
    assert "above 33554432 bytes" in (await refused(api, *[part(file_id=file_id)] * 4))["message"]


async def test_more_files_than_a_request_may_have_are_refused(api, projects):
    ids = [await kept() for _ in range(9)]
    error = await refused(api, *(part(file_id=file_id) for file_id in ids))
    assert (error["param"], "more than 8 files" in error["message"]) == ("messages.0.content.9.file.file_id", True)


async def test_a_file_that_goes_while_it_is_read_is_refused(api, projects):
    file_id = await kept()
    await FileChunk.objects.all().adelete()
    assert "not any more" in (await refused(api, part(file_id=file_id)))["message"]


def test_a_project_has_half_of_the_bytes_that_a_process_holds(settings):
    most = settings.LIGHTCONE_HTTP_LIMITS.max_bodies_bytes // attached.SHARE_OF_BODIES
    assert most // 2 >= settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    room = FileRoom()
    give_back = room.take(1, most // 2)
    with pytest.raises(ApiError) as refusal:
        room.take(1, 1)
    assert refusal.value.status == 429
    room.take(2, most // 2)
    with pytest.raises(ApiError) as refusal:
        room.take(3, 1)
    assert refusal.value.status == 503
    give_back()
    room.take(3, 1)
    assert room.num_bytes == most // 2 + 1


async def test_responses_attach_files_by_id(api, scripted, projects):
    file_id = await kept()
    content = [{"type": "input_text", "text": "Sum up."}, {"type": "input_file", "file_id": file_id}]
    answer = await api.post("/v1/responses", json={"input": [{"role": "user", "content": content}], "store": False})
    assert answer.status_code == 200, answer.text
    assert scripted.requests[0].messages[0]["content"][1]["file"]["filename"] == "kept.txt"
    content[1]["file_id"] = "file-none"
    error = (await api.post("/v1/responses", json={"input": [{"role": "user", "content": content}]})).json()["error"]
    assert error["param"] == "input.0.content.1.file_id"
    assert error["message"].startswith("input.0.content.1.file_id must be the id of a file")


async def test_documents_of_messages_are_files_by_id(api, scripted, projects):
    source = {"type": "file", "file_id": await kept()}
    blocks = [{"type": "document", "source": source}, {"type": "document", "source": source, "title": "Report"}]
    body = {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": blocks}]}
    answer = await api.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    content = scripted.requests[0].messages[0]["content"]
    assert [part["file"]["filename"] for part in content] == ["kept.txt", "Report"]
    source["file_id"] = "file-none"
    error = (await api.post("/v1/messages", json=body)).json()["error"]
    assert error["message"].startswith("messages.0.content.0.source.file_id must be the id of a file")


@pytest.fixture
def seeing(monkeypatch):
    """The served model sees."""

    async def modalities(_):
        return ("image",)

    monkeypatch.setattr(images, "modalities_live", modalities)


def image(**fields):
    return {"type": "image_url", "image_url": fields}


@pytest.mark.parametrize("purpose", ["vision", "user_data", "assistants"])
async def test_an_image_of_the_project_reaches_the_worker_as_one_that_was_sent(
    api, scripted, projects, seeing, purpose
):
    file_id = await kept(PNG, purpose=purpose, filename="x.png")
    assert (await asked(api, image(file_id=file_id, detail="low"))).status_code == 200
    (_, sent) = scripted.requests[0].messages[0]["content"]
    place = "messages.0.content.1.image_url.file_id"
    assert sent == {"type": "image", "data": base64.b64encode(PNG).decode(), "detail": "low", "param": place}
    assert attached.room.num_bytes == 0


@pytest.mark.parametrize("how", ["foreign", "batch", "text", "large", "empty"])
async def test_an_image_that_may_not_be_attached_is_refused(api, projects, seeing, settings, how):
    content = {"text": b"No image.", "empty": b""}.get(how, PNG)
    purpose = "batch" if how == "batch" else "vision"
    file_id = await kept(content, purpose=purpose, project_id=FOREIGN if how == "foreign" else OWN)
    if how == "large":
        settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, max_file_bytes=10)
    words = {
        "foreign": "must be the id of a file of this project",
        "batch": "must be a file of purpose user_data, assistants or vision",
        "text": "must be the id of an image: AVIF, BMP, GIF, JPEG, PNG, TIFF, WebP",
        "empty": "must be the id of an image",
        "large": f"must be a file of at most 10 bytes, got {len(PNG)}",
    }
    error = await refused(api, image(file_id=file_id))
    assert error["param"] == "messages.0.content.1.image_url.file_id"
    assert words[how] in error["message"]


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"file_id": 5}, ".file_id", "must be a string"),
        ({"file_id": ""}, ".file_id", "must be the id of a file"),
        (
            {"file_id": "file-1", "url": "data:image/png;base64,AAAA"},
            "",
            "must have url or file_id; leave the other out",
        ),
        ({"file_id": "file-1", "detail": "ultra"}, ".detail", "must be one of auto, low, high"),
    ],
    ids=str,
)
async def test_an_image_that_names_no_file_is_refused_by_its_place(api, projects, seeing, fields, place, words):
    error = await refused(api, image(**fields))
    assert error["param"] == f"messages.0.content.1.image_url{place}"
    assert words in error["message"]


async def test_an_image_by_id_has_no_name_of_the_callers(api, projects, seeing):
    error = await refused(api, {**image(file_id=await kept(PNG)), "uuid": "mine"})
    assert error["param"] == "messages.0.content.1.uuid"
    assert "leave it out: file_id names the image" in error["message"]


async def test_a_model_that_reads_text_alone_refuses_an_image_by_id_at_its_place(api, projects):
    error = await refused(api, image(file_id=await kept(PNG)))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages.0.content.1.image_url.file_id")


async def test_images_of_responses_are_files_by_id(api, scripted, projects, seeing):
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "file_id": await kept(PNG)}]
    answer = await api.post("/v1/responses", json={"input": [{"role": "user", "content": content}], "store": False})
    assert answer.status_code == 200, answer.text
    assert scripted.requests[0].messages[0]["content"][1]["data"] == base64.b64encode(PNG).decode()
    content[1]["file_id"] = "file-none"
    error = (await api.post("/v1/responses", json={"input": [{"role": "user", "content": content}]})).json()["error"]
    assert error["param"] == "input.0.content.1.file_id"
    assert "must be the id of a file" in error["message"]


@pytest.mark.parametrize("in_result", [False, True])
async def test_images_of_messages_are_files_by_id(api, scripted, projects, seeing, in_result):
    source = {"type": "file", "file_id": await kept(PNG)}
    blocks, place = [{"type": "image", "source": source}], "messages.0.content.0.source.file_id"
    turns = [{"role": "user", "content": blocks}]
    if in_result:
        place = "messages.2.content.0.content.0.source.file_id"
        use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": blocks}
        turns = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [use]}]
        turns += [{"role": "user", "content": [result]}]
    body = {"model": "tiny", "max_tokens": 8, "messages": turns, "tools": [{"name": "look", "input_schema": {}}]}
    answer = await api.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert scripted.requests[0].messages[-1]["content"][0]["data"] == base64.b64encode(PNG).decode()
    source["file_id"] = "file-none"
    error = (await api.post("/v1/messages", json=body)).json()["error"]
    assert error["message"].startswith(f"{place} must be the id of a file")
