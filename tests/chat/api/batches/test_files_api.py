"""`/v1/files`: files are returned unchanged, and bad uploads are refused by name in the common error shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from channels.db import database_sync_to_async
from openai.types import FileDeleted, FileObject

from chat.batches.files import FileWriter
from chat.batches.models import CHUNK_BYTES
from chat.models import ProjectFile
from tests.chat.api.batches.conftest import file_id, upload

BOUNDARY = "b0undary"


def part(name: str, value: str, filename: str | None = None) -> str:
    is_file = f'; filename="{filename}"' if filename is not None else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{is_file}\r\n\r\n{value}\r\n'


FILE, PURPOSE, END = part("file", "{}", "a.jsonl"), part("purpose", "batch"), f"--{BOUNDARY}--\r\n"


async def post_raw(
    api: httpx.AsyncClient, body: str | bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}"
) -> Any:
    return await api.post("/v1/files", content=body, headers={"Content-Type": content_type})


async def test_a_file_is_returned_unchanged(api: httpx.AsyncClient) -> None:
    content = bytes(range(256)) * (CHUNK_BYTES // 256) + b"\r\nend\0"
    answer = await upload(api, content, "übung .jsonl")
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    file = FileObject.model_validate(answer.json(), strict=True)
    assert (file.bytes, file.filename, file.purpose, file.status) == (
        len(content),
        "übung .jsonl",
        "batch",
        "processed",
    )
    assert file.id.startswith("file-")
    assert file.expires_at == file.created_at + 30 * 24 * 3600
    assert (await api.get(f"/v1/files/{file.id}")).json() == answer.json()
    sent = await api.get(f"/v1/files/{file.id}/content")
    assert sent.content == content
    assert sent.headers["content-length"] == str(len(content))
    assert sent.headers["content-type"] == "application/octet-stream"
    assert sent.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_routes_work_with_and_without_a_trailing_slash(api: httpx.AsyncClient, slash: str) -> None:
    name = await file_id(api)
    for path in ("files", f"files/{name}", f"files/{name}/content"):
        assert (await api.get(f"/v1/{path}{slash}")).status_code == 200


async def test_the_openai_client_uploads_lists_reads_and_deletes(api: httpx.AsyncClient, keys: tuple[str, str]) -> None:
    async with openai.AsyncOpenAI(
        api_key=keys[0], base_url="http://localhost/v1", http_client=api, max_retries=0
    ) as client:
        made = await client.files.create(
            file=("a.jsonl", b"{}"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert made.expires_at == made.created_at + 3600
        assert [file.id async for file in client.files.list(purpose="user_data")] == [made.id]
        assert (await client.files.content(made.id)).content == b"{}"
        assert (await client.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(made.id)


async def test_other_projects_and_requests_without_a_key_see_no_file(
    api: httpx.AsyncClient, stranger: dict[str, str]
) -> None:
    name = await file_id(api)
    for path in (f"/v1/files/{name}", f"/v1/files/{name}/content"):
        theirs, none = await api.get(path, headers=stranger), await api.get("/v1/files/file-0" + path[9 + len(name) :])
        assert theirs.status_code == none.status_code == 404
        assert theirs.json()["error"]["code"] == "not_found"
        assert (await api.get(path, headers={"Authorization": ""})).status_code == 401
    assert (await api.delete(f"/v1/files/{name}", headers=stranger)).status_code == 404
    assert (await api.get("/v1/files", headers=stranger)).json()["data"] == []


async def test_a_deleted_file_is_404(api: httpx.AsyncClient) -> None:
    name = await file_id(api)
    answer = (await api.delete(f"/v1/files/{name}")).json()
    assert FileDeleted.model_validate(answer, strict=True).deleted
    assert (await api.get(f"/v1/files/{name}/content")).status_code == 404
    assert (await api.delete(f"/v1/files/{name}")).status_code == 404


async def test_lists_have_pages_orders_and_purposes(api: httpx.AsyncClient) -> None:
    made = [await file_id(api, purpose="batch" if number else "assistants") for number in range(3)]
    page = (await api.get("/v1/files?limit=2")).json()
    assert [file["id"] for file in page["data"]] == [made[2], made[1]]
    assert (page["object"], page["has_more"], page["first_id"], page["last_id"]) == ("list", True, made[2], made[1])
    assert [file["id"] for file in (await api.get(f"/v1/files?after={made[1]}")).json()["data"]] == [made[0]]
    assert [file["id"] for file in (await api.get("/v1/files?order=asc&purpose=batch")).json()["data"]] == made[1:]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=file-9", "after"),
        ("purpose=x", "purpose"),
    ],
)
async def test_a_bad_query_is_refused_by_name(api: httpx.AsyncClient, query: str, param: str) -> None:
    answer = await api.get(f"/v1/files?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


REFUSED: dict[str, tuple[str, str | None]] = {
    PURPOSE + END: ("missing_required_parameter", "file"),
    FILE + END: ("missing_required_parameter", "purpose"),
    FILE + part("purpose", "evals") + END: ("invalid_value", "purpose"),
    FILE + part("purpose", "batch_output") + END: ("invalid_value", "purpose"),
    FILE + PURPOSE + PURPOSE + END: ("invalid_value", "purpose"),
    FILE + FILE + PURPOSE + END: ("invalid_value", "file"),
    PURPOSE + part("file", "{}") + END: ("invalid_type", "file"),
    PURPOSE + part("upload", "{}", "a.jsonl") + END: ("missing_required_parameter", "file"),
    PURPOSE + part("file", "{}", "") + END: ("invalid_type", "file"),
    PURPOSE + FILE: ("invalid_value", "file"),
    "": ("missing_required_parameter", "purpose"),
    "no parts at all": ("missing_required_parameter", "purpose"),
    FILE + PURPOSE + part("expires_after[anchor]", "now") + END: (
        "missing_required_parameter",
        "expires_after.seconds",
    ),
    FILE + PURPOSE + part("expires_after[seconds]", "3600") + END: (
        "missing_required_parameter",
        "expires_after.anchor",
    ),
    FILE + PURPOSE + part("expires_after[anchor]", "created_at") + part("expires_after[seconds]", "5") + END: (
        "invalid_value",
        "expires_after.seconds",
    ),
    FILE + PURPOSE + part("expires_after[anchor]", "now") + part("expires_after[seconds]", "3600") + END: (
        "invalid_value",
        "expires_after.anchor",
    ),
    FILE + PURPOSE + part("expires_after", '{"anchor": "created_at", "seconds": 3600}') + END: (
        "invalid_type",
        "expires_after",
    ),
    FILE + PURPOSE + part("x", "y") * 1100 + END: ("invalid_value", None),
    f"--{BOUNDARY}\r\nX: a; filename*=UTF-8''%ff; filename*0*=b\r\n\r\n\r\n{FILE}{PURPOSE}{END}": (
        "invalid_value",
        "file",
    ),
}


@pytest.mark.parametrize("body", REFUSED)
async def test_a_bad_upload_is_refused_by_name(api: httpx.AsyncClient, body: str) -> None:
    answer = await post_raw(api, body)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["code"], error["param"]) == REFUSED[body], error
    assert answer.json()["message"] == error["message"]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=" + "x" * 300,
        "multipart/form-data; boundary*=no-encoding''a",
        "multipart/form-data; boundary*=UTF-8''%ff; boundary*0*=b",
    ],
)
async def test_a_body_that_is_no_form_is_refused(api: httpx.AsyncClient, content_type: str) -> None:
    answer = await post_raw(api, FILE + PURPOSE + END, content_type)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    ("sent", "kept"), [("../../etc/passwd", "passwd"), ("C:\\x\\a.jsonl", "a.jsonl"), ("x" * 300 + ".jsonl", None)]
)
async def test_hostile_file_names_are_sanitised(api: httpx.AsyncClient, sent: str, kept: str | None) -> None:
    name = (await upload(api, name=sent)).json()["filename"]
    assert len(name) <= 255
    assert kept is None or name == kept


async def test_a_large_upload_is_413_and_a_full_project_429(api: httpx.AsyncClient, settings: Any) -> None:
    settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES = 10
    full = await upload(api, b"x" * 11)
    assert (full.status_code, full.json()["error"]["code"]) == (429, "insufficient_quota")
    assert full.headers["x-should-retry"] == "false"
    settings.LIGHTCONE_HTTP_LIMITS = replace(settings.LIGHTCONE_HTTP_LIMITS, max_upload_bytes=5)
    for size in (6, 100_000):
        large = await upload(api, b"x" * size)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    assert (await upload(api, b"x" * 5)).status_code == 200


async def test_other_methods_are_405(api: httpx.AsyncClient) -> None:
    answer = await api.put("/v1/files")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


async def test_an_interrupted_upload_leaves_nothing(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(FileWriter, "finish", finish)
        assert (await upload(api)).status_code == 500
    assert not await database_sync_to_async(ProjectFile.objects.exists)()
    assert (await upload(api)).status_code == 200
