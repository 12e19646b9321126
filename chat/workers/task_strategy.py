"""The Celery strategy of the tasks of runs: how the consumer of a model worker passes them to the pool.

Celery's default strategy builds a request with events, rate limits and times, and traces the task in the pool. That
adds half a millisecond to each request and serves nothing here. This one keeps only the count of reserved tasks, by
which a worker fetches no more tasks than its pool has threads (CELERY_WORKER_DISABLE_PREFETCH). It also wakes the
consumer when a thread becomes free, as Celery would only poll once a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.state import reserved_requests, task_accepted, task_ready, task_reserved

logger = logging.getLogger(__name__)

_counting = threading.Lock()
"""Guards Celery's process-wide counts, so that a consumer that finds all threads busy is woken by the next free one."""


class TaskInHand:
    """A fetched, unfinished task, with the attributes that Celery's counts, `inspect active` and a cold shutdown use."""

    def __init__(self, task: Any, task_id: str, arguments: tuple[str, int]) -> None:
        self.task = task
        self.name: str = task.name
        self.id = task_id
        self.arguments = arguments

    def info(self, safe: bool = False) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "args": self.arguments, "kwargs": {}}

    def cancel(self, pool: Any, **_: Any) -> None:
        """Do nothing in a cold shutdown: the worker's lease ends, and another worker continues its runs."""


def run_strategy(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """Return the function that the consumer calls with each message of `task`, whose arguments are those of
    `ModelWorker.begin`.

    1. Send the claim at once, in the consumer's thread.  2. Wait for its reply in a thread of the pool.
    """
    pool, hub = consumer.pool, consumer.hub

    def hand_out(message: Any, *_: Any) -> None:
        # There is nothing to acknowledge: the queues of models are consumed with no_ack (chat.workers.model_step).
        task_id, run_id, attempt = _read(message)
        in_hand = TaskInHand(task, task_id, (run_id, attempt))
        with _counting:
            task_reserved(in_hand)
            task_accepted(in_hand)  # a thread is free for it; and only those count on where the broker was lost
        try:
            take = app.model_worker.begin(run_id, attempt)
        except Exception:
            # An exception would end the process. The run stays queued, and the reaper sends its task again.
            logger.exception("%s%s could not be begun", in_hand.name, in_hand.arguments)
            let_go(in_hand)
            return
        pool.apply_async(_take, args=(in_hand, take, let_go), callback=_ignore)

    def let_go(in_hand: TaskInHand) -> None:
        with _counting:
            was_full = len(reserved_requests) >= pool.num_processes
            task_ready(in_hand)
        if was_full and hub is not None:
            hub.call_soon(_ignore, None)

    return hand_out


def _read(message: Any) -> tuple[str, str, int]:
    """Return task id, run id and attempt. Raises InvalidTaskError, which the consumer logs, for any other message."""
    match message.headers.get("id"), message.payload:
        case str(task_id), [[str(run_id), int(attempt)], {}, *_]:
            return task_id, run_id, attempt
    raise InvalidTaskError("a task of a run has an id and two arguments, the run id and the number of the attempt")


def _take(in_hand: TaskInHand, take: Callable[[], None], let_go: Callable[[TaskInHand], None]) -> None:
    try:
        take()
    except Exception:
        # The pool drops exceptions.
        logger.exception("%s%s failed", in_hand.name, in_hand.arguments)
    finally:
        let_go(in_hand)


def _ignore(_: object) -> None:
    """Do nothing: the pool requires a callback for results, and the hub wakes up to call one."""
