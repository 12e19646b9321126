"""The Celery tasks of batches: a call reaches the runner of its worker, and retention deletes old rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from chat.batches.files import FileAbout
from chat.batches.services import BatchOrder, batch_create
from chat.models import Batch, Project, ProjectFile
from chat.relay import commands
from chat.tasks import batches_wake, files_retention
from tests.chat.batches.stored_files import file_create


class Runner:
    num_calls = 0

    def wake(self) -> None:
        self.num_calls += 1


def test_a_call_reaches_the_runner_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner()
    monkeypatch.setattr(current_app._get_current_object(), "batch_runner", runner, raising=False)
    batches_wake()
    assert runner.num_calls == 1


def test_a_worker_without_a_runner_ignores_the_call() -> None:
    batches_wake()


async def test_an_unreachable_broker_only_delays_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **options: Any) -> None:
        raise ConnectionError("away")

    monkeypatch.setattr(commands.current_app, "send_task", away)
    await commands.batches_wake_async()


def test_retention_deletes_old_files_and_batches(project: Project, settings: Any) -> None:
    file = file_create(about=FileAbout(project.pk, "k", "in.jsonl", "batch"), content=b"{}")
    batch = batch_create(order=BatchOrder(project.pk, "k", "/v1/chat/completions", file.public_id))
    files_retention()
    assert (ProjectFile.objects.count(), Batch.objects.count()) == (1, 1)
    long_ago = timezone.now() - timedelta(days=settings.LIGHTCONE_FILE_DAYS, seconds=1)
    Batch.objects.filter(pk=batch.pk).update(status="completed", created_at=long_ago)
    ProjectFile.objects.update(expires_at=timezone.now())
    files_retention()
    assert (ProjectFile.objects.count(), Batch.objects.count()) == (0, 0)
