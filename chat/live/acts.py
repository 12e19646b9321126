"""The acts of people on workers and on live requests: drain, resume, restart a model's core, cancel. All block."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction

from chat.access.models import Project
from chat.audit.services import Subject, audit_record
from chat.live.snapshot import LiveRun, run_read
from chat.live.source import source
from chat.relay.commands import drain_send, stop_send
from chat.relay.state.keys import Keys
from chat.relay.state.runs import STOP
from chat.relay.valkey import Answers, valkey_connect_blocking
from engine.api import Outcome


@transaction.atomic
def worker_drain(*, node: str, is_draining: bool) -> None:
    """Have a worker take no new requests, or take them again. Raises any error of the broker's client."""
    audit_record(action=f"worker.{'drain' if is_draining else 'resume'}", on=Subject(node, node))
    drain_send(node, is_draining)
    source.forget()


def run_find(*, run_id: str) -> LiveRun | None:
    """Return a request that has not ended; None if there is none. Raises redis.RedisError or OSError."""
    keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        fields: Any = client.hmget(keys.meta(run_id), ["state", "worker", "about"])
    return run_read(run_id, fields) if fields[0] in (b"queued", b"running") else None


def run_cancel(*, run_id: str) -> bool:
    """Stop a request for everybody who reads it; False if it has ended. Raises any error of Valkey or the broker.

    It is recorded once Valkey has stopped it, whether or not its worker can be told.
    """
    run = run_find(run_id=run_id)
    if run is None:
        return False
    org_id = Project.objects.filter(pk=run.project_id).values_list("org_id", flat=True).first() or 0
    keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        answers: Answers = client
        said = answers.eval(STOP, 2, keys.meta(run_id), keys.unread, run_id, str(Outcome.STOPPED))
    is_stopped: bool = said[0] == b"stop"
    source.forget()
    if is_stopped:
        audit_record(action="request.cancel", on=Subject(run_id, run.model, org_id, run.project_id))
        if said[1]:
            stop_send(said[1].decode(), run_id, str(Outcome.STOPPED))
    return is_stopped
