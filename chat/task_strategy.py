"""From Celery's consumer to its pool: how a model worker hands out the tasks of runs. Celery's word for that is the strategy of a task.

The default one builds a request with events, limits of rate and times, and has the pool trace the task: half a millisecond of what a
request waits for, on the thread that fetches tasks and on the one that runs them. A task of a run uses none of it. What is kept is the
count of tasks in hand, by which a worker fetches no more of them than its pool has threads (CELERY_WORKER_DISABLE_PREFETCH).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.state import task_ready, task_reserved

logger = logging.getLogger(__name__)


class TaskInHand:
    """What Celery's counts, and `inspect reserved`, ask of a task that was fetched and is not done."""

    def __init__(self, name: str, task_id: str, arguments: tuple[str, int]) -> None:
        self.name = name
        self.id = task_id
        self.arguments = arguments

    def info(self, safe: bool = False) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "args": self.arguments, "kwargs": {}}


def run_strategy(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """What the consumer calls with each message of `task`, whose arguments are those of `ModelWorker.begin`.

    1. The run is asked for at once, in the consumer's thread.  2. A thread of the pool does what waits for the answer.
    """
    apply_async = consumer.pool.apply_async

    def hand_out(message: Any, *_: Any) -> None:
        # There is nothing to acknowledge: the queues of models are consumed without (chat.worker).
        run_id, attempt = _arguments(message.payload)
        in_hand = TaskInHand(task.name, message.headers["id"], (run_id, attempt))
        task_reserved(in_hand)
        apply_async(_take, args=(in_hand, app.model_worker.begin(run_id, attempt)), callback=_ignore)

    return hand_out


def _arguments(payload: Any) -> tuple[str, int]:
    """Run id and attempt. Raises InvalidTaskError, which the consumer logs, for what nobody here has sent."""
    match payload:
        case [[str(run_id), int(attempt)], {}, *_]:
            return run_id, attempt
    raise InvalidTaskError("a task of a run has two arguments, the run id and the number of the attempt")


def _take(in_hand: TaskInHand, take: Callable[[], None]) -> None:
    try:
        take()
    except Exception:
        # Nobody looks at what the pool's threads raise.
        logger.exception("%s%s failed", in_hand.name, in_hand.arguments)
    finally:
        task_ready(in_hand)


def _ignore(_: object) -> None:
    """The pool wants to tell somebody of each result."""
