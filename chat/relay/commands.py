"""What is asked of Celery: a control command per stop, and a task per run that is queued again (the first one is part of its admission).
Publishing blocks, so it goes through a small thread pool.

Tasks are sent by name: a web process imports neither the tasks nor the worker. A failure is the caller's to handle; nothing
is tried twice here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from celery import current_app

from chat.relay.state.keys import queue_of
from chat.relay.state.task_message import GENERATE_TASK

logger = logging.getLogger(__name__)

STOP_COMMAND = "lightcone_stop"
STATS_COMMAND = "lightcone_stats"
BATCHES_WAKE_TASK = "chat.batches_wake"
MAINTENANCE_QUEUE = "maintenance"
SEND_TIMEOUT_S = 4.0

_senders = ThreadPoolExecutor(max_workers=4, thread_name_prefix="celery-send")


def senders_warm() -> None:
    """Have a thread connect to the broker: the modules of its transport alone take the first request half a second."""
    _senders.submit(_connect)


def _connect() -> None:
    try:
        with current_app.producer_pool.acquire(block=True, timeout=SEND_TIMEOUT_S) as producer:
            producer.connection.ensure_connection(max_retries=1, timeout=SEND_TIMEOUT_S)
    except Exception as error:
        # Whatever the broker's client raises: the first request tries again.
        logger.info("the broker does not answer yet: %s", error)


def worker_node(worker_id: str) -> str:
    """The Celery node of a worker id, `<node>~<incarnation>`."""
    return worker_id.partition("~")[0]


def task_send(run_id: str, attempt: int, slug: str) -> None:
    """Publish the task of a run. Blocks; raises kombu's OperationalError and others where the broker is away."""
    current_app.send_task(GENERATE_TASK, args=(run_id, attempt), queue=queue_of(slug), retry=False, ignore_result=True)


def stop_send(worker_id: str, run_id: str, outcome: str) -> None:
    """Tell a worker to end a run. Blocks."""
    arguments = {"run_id": run_id, "outcome": outcome}
    current_app.control.broadcast(STOP_COMMAND, arguments=arguments, destination=[worker_node(worker_id)], reply=False)


async def task_send_async(run_id: str, attempt: int, slug: str) -> None:
    """`task_send` from a loop. Raises TimeoutError when the broker does not answer."""
    await _in_thread(task_send, run_id, attempt, slug)


async def stop_send_async(worker_id: str, run_id: str, outcome: str) -> None:
    """`stop_send` from a loop."""
    await _in_thread(stop_send, worker_id, run_id, outcome)


async def batches_wake_async() -> None:
    """Tell a maintenance worker that there are batches to look at. Nothing is lost if that fails: they look by themselves."""
    try:
        await _in_thread(_batches_wake)
    except Exception as error:
        # Whatever the broker's client raises.
        logger.info("batches are not called for: %s", error)


def _batches_wake() -> None:
    current_app.send_task(BATCHES_WAKE_TASK, queue=MAINTENANCE_QUEUE, retry=False, ignore_result=True)


async def _in_thread(function: Callable[..., None], *arguments: object) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await asyncio.get_running_loop().run_in_executor(_senders, function, *arguments)
