"""From Celery's consumer to its pool: how a model worker hands out the tasks of runs. Celery's word for that is the strategy of a task.

The default one builds a request with events, limits of rate and times, and has the pool trace the task: half a millisecond of what a
request waits for, on the thread that fetches tasks and on the one that runs them. A task of a run uses none of it. What is kept is the
count of tasks in hand, by which a worker fetches no more of them than its pool has threads (CELERY_WORKER_DISABLE_PREFETCH). Nothing of
Celery wakes the consumer when one of them is free again, and it looks once a second, so that is done here too.
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
"""Held where Celery's counts change, which are the process's: a consumer that finds all threads taken is woken by the next free one."""


class TaskInHand:
    """What Celery's counts, `inspect active` and a cold shutdown ask of a task that was fetched and is not done."""

    def __init__(self, task: Any, task_id: str, arguments: tuple[str, int]) -> None:
        self.task = task
        self.name: str = task.name
        self.id = task_id
        self.arguments = arguments

    def info(self, safe: bool = False) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "args": self.arguments, "kwargs": {}}

    def cancel(self, pool: Any, **_: Any) -> None:
        """Of a cold shutdown, which waits for nothing: the worker's lease ends, and another one goes on with its runs."""


def run_strategy(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """What the consumer calls with each message of `task`, whose arguments are those of `ModelWorker.begin`.

    1. The run is asked for at once, in the consumer's thread.  2. A thread of the pool does what waits for the answer.
    """
    pool, hub = consumer.pool, consumer.hub

    def hand_out(message: Any, *_: Any) -> None:
        # There is nothing to acknowledge: the queues of models are consumed without (chat.workers.model).
        task_id, run_id, attempt = _read(message)
        in_hand = TaskInHand(task, task_id, (run_id, attempt))
        with _counting:
            task_reserved(in_hand)
            task_accepted(in_hand)  # a thread is free for it; and only those count on where the broker was lost
        try:
            take = app.model_worker.begin(run_id, attempt)
        except Exception:
            # The consumer would end the process. The run waits in the queue, and its task is sent again (chat.relay.reaper).
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
    """Ids of task and run, and the attempt. Raises InvalidTaskError, which the consumer logs, for what nobody here has sent."""
    match message.headers.get("id"), message.payload:
        case str(task_id), [[str(run_id), int(attempt)], {}, *_]:
            return task_id, run_id, attempt
    raise InvalidTaskError("a task of a run has an id and two arguments, the run id and the number of the attempt")


def _take(in_hand: TaskInHand, take: Callable[[], None], let_go: Callable[[TaskInHand], None]) -> None:
    try:
        take()
    except Exception:
        # Nobody looks at what the pool's threads raise.
        logger.exception("%s%s failed", in_hand.name, in_hand.arguments)
    finally:
        let_go(in_hand)


def _ignore(_: object) -> None:
    """The pool wants to tell somebody of each result, and the hub is woken by something to do."""
