"""The Celery message of a run's first task, which admit.lua pushes into the queue of the model.

Neither task nor run exists without the other. Celery and kombu write the message once per process; docs/decisions/0012.
"""

from __future__ import annotations

import json
from functools import cache

from celery import current_app
from kombu import Connection

from chat.relay.state.keys import queue_of

GENERATE_TASK = "chat.generate"
RUN_ID, SLUG = "<run id>", "<slug>"
"""Placeholders of the template; neither they nor their values need an escape in JSON."""


def first_task(run_id: str, slug: str) -> bytes:
    """Return the message of attempt 1 of a run, for the workers of a model."""
    return task_template().replace(RUN_ID, run_id).replace(SLUG, slug).encode()


@cache
def task_template() -> str:
    """Return the message that Celery publishes for the task, in the form in which kombu's Redis transport stores it."""
    queue = queue_of(SLUG)
    with Connection("memory://") as connection:
        current_app.send_task(
            GENERATE_TASK, args=(1,), task_id=RUN_ID, queue=queue, connection=connection, ignore_result=True
        )
        message = connection.SimpleQueue(queue, no_ack=True).get_nowait().serializable()
    message["properties"]["delivery_tag"] = RUN_ID
    return json.dumps(message)
