"""The task of a new run as it lies in the queue of its model, for the script of admission, which puts it there.

Celery's own way to publish takes two milliseconds and a thread, before which the run is there and its task is not. The form is that of
Celery's second message protocol in the list of kombu's transport for Redis; a test compares it with what Celery writes.
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
    """`chat.generate(run_id, attempt)` for the workers of a model. The id of the task is that of the run."""
    arguments = (run_id, attempt)
    body = b64encode(json.dumps((arguments, {}, EMBEDDED)).encode()).decode()
    # None of the three needs an escape in JSON.
    return _form(slug).replace(BODY, body).replace(ARGUMENTS, repr(arguments)).replace(RUN_ID, run_id).encode()


@lru_cache
def _form(slug: str) -> str:
    """The message of any task of a model, with words for what differs from task to task."""
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
