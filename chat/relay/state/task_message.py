"""The message of a run's Celery task, which admit.lua puts into the queue of its model.

Publishing through Celery takes two milliseconds and a thread, and is not atomic with the creation of the run. The
format is Celery's message protocol 2 in a list of kombu's Redis transport; a test compares it with what Celery writes.
"""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from functools import lru_cache

from chat.relay.state.keys import queue_of

GENERATE_TASK = "chat.generate"
ORIGIN = f"web@{socket.gethostname()}"
EMBEDDED: dict[str, None] = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
BODY, RUN_ID, ARGUMENTS = "<body>", "<run id>", "<arguments>"


def task_message(run_id: str, attempt: int, slug: str) -> bytes:
    """Return the message of `chat.generate(run_id, attempt)` for the workers of a model. The task id is the run id."""
    arguments = (run_id, attempt)
    body = b64encode(json.dumps((arguments, {}, EMBEDDED)).encode()).decode()
    # None of the three needs an escape in JSON.
    return _form(slug).replace(BODY, body).replace(ARGUMENTS, repr(arguments)).replace(RUN_ID, run_id).encode()


@lru_cache
def _form(slug: str) -> str:
    """Return the message template of a model's tasks, with placeholders for the fields that differ."""
    message = {
        "body": BODY,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": GENERATE_TASK,
            "id": RUN_ID,
            "shadow": None,
            "eta": None,
            "expires": None,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": (None, None),
            "root_id": RUN_ID,
            "parent_id": None,
            "argsrepr": ARGUMENTS,
            "kwargsrepr": "{}",
            "origin": ORIGIN,
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
        },
        "properties": {
            "correlation_id": RUN_ID,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue_of(slug)},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": RUN_ID,
        },
    }
    return json.dumps(message)
