"""`/v1/batches`: requests and answers."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from channels.db import database_sync_to_async
from openai.types import Batch as BatchObject

from chat.models import Batch
from tests.chat.api.batches.conftest import file_id

ENDPOINT = "/v1/chat/completions"


async def create(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"input_file_id": None, "endpoint": ENDPOINT, "completion_window": "24h", **fields}
    if body["input_file_id"] is None:
        body["input_file_id"] = await file_id(api)
    return await api.post("/v1/batches", json={name: value for name, value in body.items() if value != "absent"})


async def test_a_batch_is_created_and_its_runner_called(api: httpx.AsyncClient, calls: list[str]) -> None:
    answer = await create(api, metadata={"job": "7"})
    batch = BatchObject.model_validate(answer.json(), strict=True)
    assert answer.status_code == 200
    assert (batch.status, batch.endpoint, batch.completion_window, batch.metadata) == (
        "validating",
        ENDPOINT,
        "24h",
        {"job": "7"},
    )
    assert batch.expires_at == batch.created_at + 24 * 3600
    assert batch.request_counts is not None
    assert batch.request_counts.total == 0
    assert batch.errors is batch.output_file_id is batch.error_file_id is None
    assert calls == ["wake"]
    assert (await api.get(f"/v1/batches/{batch.id}")).json() == answer.json()


async def test_the_openai_client_creates_lists_and_cancels(api: httpx.AsyncClient, keys: tuple[str, str]) -> None:
    async with openai.AsyncOpenAI(
        api_key=keys[0], base_url="http://localhost/v1", http_client=api, max_retries=0
    ) as client:
        file = await client.files.create(file=("a.jsonl", b"{}"), purpose="batch")
        made = [
            await client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
            for _ in range(3)
        ]
        assert [batch.id async for batch in client.batches.list(limit=2)] == [batch.id for batch in reversed(made)]
        cancelled = await client.batches.cancel(made[0].id)
        assert cancelled.status == "cancelling"
        assert cancelled.cancelling_at
        assert (await client.batches.cancel(made[0].id)).cancelling_at == cancelled.cancelling_at


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input_file_id": "absent"}, "missing_required_parameter", "input_file_id"),
        ({"input_file_id": 5}, "invalid_type", "input_file_id"),
        ({"input_file_id": "file-\0"}, "not_found", "input_file_id"),
        ({"input_file_id": "file-none"}, "not_found", "input_file_id"),
        ({"endpoint": "absent"}, "missing_required_parameter", "endpoint"),
        ({"endpoint": "/v1/moderations"}, "invalid_value", "endpoint"),
        ({"completion_window": "absent"}, "missing_required_parameter", "completion_window"),
        ({"completion_window": "1h"}, "invalid_value", "completion_window"),
        ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "invalid_value", "metadata"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 1}},
            "invalid_value",
            "output_expires_after.seconds",
        ),
        ({"output_expires_after": "soon"}, "invalid_type", "output_expires_after"),
    ],
)
async def test_a_bad_batch_request_is_refused_by_name(
    api: httpx.AsyncClient, calls: list[str], fields: Any, code: str, param: str
) -> None:
    answer = await create(api, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404 if code == "not_found" else 400, code, param), (
        error
    )
    assert calls == []


async def test_a_file_of_another_purpose_or_project_is_refused_as_input(
    api: httpx.AsyncClient, stranger: dict[str, str]
) -> None:
    assert (await create(api, input_file_id=await file_id(api, purpose="user_data"))).status_code == 400
    body = {"input_file_id": await file_id(api), "endpoint": ENDPOINT, "completion_window": "24h"}
    assert (await api.post("/v1/batches", json=body, headers=stranger)).status_code == 404


async def test_other_projects_and_requests_without_a_key_see_no_batch(
    api: httpx.AsyncClient, stranger: dict[str, str]
) -> None:
    name = (await create(api)).json()["id"]
    assert (await api.get(f"/v1/batches/{name}", headers=stranger)).status_code == 404
    assert (await api.post(f"/v1/batches/{name}/cancel", headers=stranger)).status_code == 404
    assert (await api.get("/v1/batches", headers=stranger)).json()["data"] == []
    assert (await api.get("/v1/batches", headers={"Authorization": ""})).status_code == 401
    assert (await api.get(f"/v1/batches?after={name}", headers=stranger)).json()["error"]["param"] == "after"


async def test_an_ended_batch_cannot_be_cancelled(api: httpx.AsyncClient) -> None:
    name = (await create(api)).json()["id"]
    await database_sync_to_async(Batch.objects.update)(status="completed")
    answer = await api.post(f"/v1/batches/{name}/cancel")
    assert answer.status_code == 400
    assert "completed" in answer.json()["error"]["message"]


async def test_open_batches_of_a_project_are_limited(api: httpx.AsyncClient, settings: Any) -> None:
    settings.LIGHTCONE_MAX_OPEN_BATCHES = 1
    assert (await create(api)).status_code == 200
    answer = await create(api)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")
    await database_sync_to_async(Batch.objects.update)(status="completed")
    assert (await create(api)).status_code == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=none"])
async def test_a_bad_query_is_refused_by_name(api: httpx.AsyncClient, query: str) -> None:
    assert (await api.get(f"/v1/batches?{query}")).json()["error"]["param"] == "limit"
