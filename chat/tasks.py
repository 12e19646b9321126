"""Celery tasks; each calls one service."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from chat.alerts.deliveries import alerts_prune
from chat.api.stored.services import answers_prune
from chat.audit.services import audit_prune
from chat.batches.files import files_prune
from chat.batches.services import batches_prune
from chat.conversations.files import files_prune as chat_files_prune
from chat.conversations.services import RESTORABLE, conversations_prune
from chat.relay.commands import BATCHES_WAKE_TASK
from chat.relay.state.keys import slug_of
from chat.relay.state.task_message import GENERATE_TASK
from chat.usage.retention import request_logs_expire, request_texts_prune

logger = logging.getLogger(__name__)


@shared_task(name=GENERATE_TASK, bind=True, ignore_result=True, acks_late=False, max_retries=0)
def generate(self: Any, attempt: Any, attempt_of_old_task: int | None = None) -> None:
    """Claim the run whose id is this task's and submit it to the engine.

    It is never retried: leases and claims recover the runs of a lost worker. Tasks that version 0.1 has queued have two
    arguments, the run's id and the attempt.
    """
    slug = slug_of(self.request.delivery_info["routing_key"])
    if attempt_of_old_task is None:
        self.app.worker_host.take(slug, self.request.id, attempt)
    else:
        self.app.worker_host.take(slug, attempt, attempt_of_old_task)


@shared_task(name=BATCHES_WAKE_TASK, bind=True, ignore_result=True)
def batches_wake(self: Any) -> None:
    """Wake this worker's batch runner, if it has one."""
    runner = getattr(self.app, "batch_runner", None)
    if runner is not None:
        runner.wake()


@shared_task(name="chat.files_retention", ignore_result=True)
def files_retention() -> None:
    """Delete expired files, and batches that were created LIGHTCONE_FILE_DAYS ago."""
    now = timezone.now()
    num_batches = batches_prune(before=now - timedelta(days=settings.LIGHTCONE_FILE_DAYS))
    logger.info("%d files and %d batches deleted", files_prune(now=now), num_batches)


@shared_task(name="chat.answers_retention", ignore_result=True)
def answers_retention() -> None:
    """Delete stored answers that have expired."""
    logger.info("%d stored answers deleted", answers_prune(before=timezone.now()))


@shared_task(name="chat.chats_retention", ignore_result=True)
def chats_retention() -> None:
    """Remove conversations that can no longer be restored, those unchanged for LIGHTCONE_CHAT_DAYS, and their files."""
    now, days = timezone.now(), settings.LIGHTCONE_CHAT_DAYS
    unchanged_since = now - timedelta(days=days) if days else None
    num_removed = conversations_prune(unchanged_since=unchanged_since, deleted_before=now - RESTORABLE)
    logger.info("%d conversations and %d of their files removed", num_removed, chat_files_prune(now=now))


@shared_task(name="chat.alerts_retention", ignore_result=True)
def alerts_retention() -> None:
    """Delete alerts that are over, and deliveries, that are older than LIGHTCONE_ALERT_DAYS."""
    num_deleted = alerts_prune(before=timezone.now() - timedelta(days=settings.LIGHTCONE_ALERT_DAYS))
    logger.info("%d alerts and deliveries deleted", num_deleted)


@shared_task(name="chat.audit_retention", ignore_result=True)
def audit_retention() -> None:
    """Delete audit entries that are older than LIGHTCONE_AUDIT_DAYS."""
    num_deleted = audit_prune(before=timezone.now() - timedelta(days=settings.LIGHTCONE_AUDIT_DAYS))
    logger.info("%d audit entries deleted", num_deleted)


@shared_task(name="chat.logs_retention", ignore_result=True)
def logs_retention() -> None:
    """Delete requests, and texts of requests, that are older than their projects keep them."""
    now = timezone.now()
    logger.info("%d request logs deleted", request_logs_expire(now=now))
    logger.info("%d texts of requests deleted", request_texts_prune(now=now))
