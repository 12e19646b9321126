"""Admission queues the same message as Celery's `send_task`."""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from chat.relay.commands import task_send
from chat.relay.state.keys import Keys
from chat.relay.state.task_message import first_task
from lightcone_site.databases import broker_url

OWN = {"id", "root_id", "origin", "correlation_id", "reply_to", "delivery_tag"}
"""Fields that differ between messages or senders."""


def shown(raw: bytes) -> tuple[Any, Any]:
    message = json.loads(raw)
    for part in (message["headers"], message["properties"]):
        for name in OWN & part.keys():
            part[name] = type(part[name]).__name__
    return json.loads(b64decode(message.pop("body"))), message


def test_admission_and_celery_write_the_same_message(
    valkey: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(f"test-{secrets.token_hex(4)}")
    app = Celery("test", set_as_current=False)
    app.config_from_object(
        {
            name.removeprefix("CELERY_").lower(): getattr(settings, name)
            for name in dir(settings)
            if name[:7] == "CELERY_"
        }
    )
    app.conf.update(broker_url=broker_url(valkey), broker_transport_options={"global_keyprefix": keys.celery_prefix})
    monkeypatch.setattr("chat.relay.commands.current_app", app)
    task_send("a" * 32, 1, "a-model")
    with Redis.from_url(valkey) as client:
        [raw] = client.lrange(keys.tasks("a-model"), 0, -1)
    app.close()
    assert shown(first_task("a" * 32, "a-model")) == shown(raw)


def test_admission_and_the_broker_of_the_settings_use_the_same_keys(settings: Any) -> None:
    keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
    assert settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"] == keys.celery_prefix
    assert broker_url(settings.LIGHTCONE_REDIS_URL) == settings.CELERY_BROKER_URL
