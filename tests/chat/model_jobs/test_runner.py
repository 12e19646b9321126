"""The job runner over a real database and Valkey, with processes that do the work and a hub on this machine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async

from chat.catalog.model_choice import model_choice
from chat.model_jobs.models import JobState
from chat.model_jobs.runner import JobRunner
from chat.model_jobs.services import job_cancel, job_create, store
from chat.model_store.errors import StoreError
from chat.models import ModelJob, ServedModel
from chat.relay.state.keys import Keys
from chat.relay.valkey import valkey_connect
from tests.chat.model_store.local_hub import LocalHub

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
HELD_AFTER = 60 << 20

create = database_sync_to_async(job_create)
cancel = database_sync_to_async(job_cancel)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    data = model_choice(path="", name="").path.read_bytes()
    with LocalHub({"org/Smol-GGUF": {"Smol-Q4_1.gguf": data, "README.md": b"x"}}).running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
async def make(valkey: str, settings: Any, tmp_path: Path) -> AsyncIterator[Callable[[], JobRunner]]:
    settings.LIGHTCONE_REDIS_URL, settings.LIGHTCONE_DEPLOYMENT = valkey, f"test-{secrets.token_hex(4)}"
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "models"
    client = valkey_connect(valkey)
    made: list[JobRunner] = []

    def make() -> JobRunner:
        made.append(JobRunner(client, Keys(settings.LIGHTCONE_DEPLOYMENT)))
        return made[-1]

    yield make
    for runner in made:
        await runner.close()
    await client.aclose(close_connection_pool=True)


def tear(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"x")


async def state_of(job: ModelJob) -> str:
    await database_sync_to_async(job.refresh_from_db)()
    return str(job.state)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the hub runs in a thread
            await asyncio.sleep(0.01)


async def test_a_pull_is_done_and_its_model_offered_and_checked(hub: LocalHub, make: Callable[[], JobRunner]) -> None:
    runner = make()
    job = await create(kind="pull", asked="org/Smol-GGUF", revision="main", name="", asked_by="key")
    await runner.turn()
    await runner.settle()
    assert (await state_of(job), job.name, job.num_bytes) == ("done", "Smol:Q4_1", job.num_bytes)
    assert job.num_bytes > 90 << 20
    assert "Q4_1 at aaaaaaaaaaaa (the first of" in job.message
    row = await database_sync_to_async(ServedModel.objects.get)(name="Smol:Q4_1")
    assert row.maker_defaults
    for state, words in (("done", "as they were stored"), ("failed", "has other contents")):
        check = await create(kind="check", asked="Smol:Q4_1")
        await runner.turn()
        await runner.settle()
        assert (await state_of(check), words in check.message) == (state, True)
        tear(Path(row.path))


async def test_what_cannot_be_pulled_is_said_in_the_job(hub: LocalHub, make: Callable[[], JobRunner]) -> None:
    runner = make()
    absent = await create(kind="pull", asked="org/Absent")
    format = await create(kind="pull", asked="org/Smol-GGUF:Q9")
    nothing = await create(kind="import", asked="/nowhere")
    await runner.turn()
    await runner.settle()
    assert [await state_of(job) for job in (absent, format, nothing)] == ["failed"] * 3
    assert "has no format" in format.message
    assert "There is no model at" in nothing.message
    assert absent.message
    assert store().names() == []


async def test_a_pull_outlives_its_runner_and_goes_on_where_it_was(
    hub: LocalHub, make: Callable[[], JobRunner]
) -> None:
    hub.holds_after = HELD_AFTER
    first = make()
    job = await create(kind="pull", asked="org/Smol-GGUF", name="kept")
    await first.turn()
    await until(hub.held.is_set)
    await first.close()
    assert await state_of(job) == JobState.RUNNING
    hub.holds_after = 0
    hub.released.set()
    hub.requests.clear()
    second = make()
    await second.turn()
    await second.settle()
    assert (await state_of(job), job.name) == ("done", "kept")
    [(_, _, asked)] = hub.requests
    assert int(asked.removeprefix("bytes=").partition("-")[0]) > HELD_AFTER // 2


async def test_a_running_pull_is_cancelled_and_another_goes_on_beside_it(
    hub: LocalHub, make: Callable[[], JobRunner]
) -> None:
    hub.holds_after = HELD_AFTER
    runner = make()
    job = await create(kind="pull", asked="org/Smol-GGUF", name="one")
    await runner.turn()
    await until(hub.held.is_set)
    other = await create(kind="import", asked=str(model_choice(path="", name="").path), name="two")
    await runner.turn()
    await cancel(job=job)
    await runner.turn()
    await runner.settle()
    assert (await state_of(job), await state_of(other)) == ("cancelled", "done")
    assert "what was fetched is kept" in job.message
    assert (store().names(), store().unfinished()) == (["two"], ["one"])


async def test_a_stored_model_is_copied_under_another_name(make: Callable[[], JobRunner]) -> None:
    runner = make()
    default = model_choice(path="", name="").path
    await create(kind="import", asked=str(default), name="one")
    await runner.turn()
    await runner.settle()
    for name, words in (("", "needs a name"), ("one", "already")):
        with pytest.raises(StoreError, match=words):
            await create(kind="copy", asked="one", name=name)
    job = await create(kind="copy", asked="one", name="two")
    await runner.turn()
    await runner.settle()
    assert (await state_of(job), job.message) == ("done", "two has the files of one.")
    paths = [store().model_path(name) for name in ("one", "two")]
    assert paths[0].samefile(paths[1])
    assert await database_sync_to_async(ServedModel.objects.filter(name="two").exists)()


async def test_a_pull_that_is_cancelled_while_it_waits_never_runs(hub: LocalHub, make: Callable[[], JobRunner]) -> None:
    runner = make()
    job = await create(kind="pull", asked="org/Smol-GGUF", name="one")
    await cancel(job=job)
    await runner.turn()
    await runner.settle()
    assert (await state_of(job), store().unfinished(), hub.requests) == ("cancelled", [], [])
