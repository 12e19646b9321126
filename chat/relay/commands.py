"""Sends through Celery: a command for each stop, and a task for each run that is queued again.

Publishing blocks, so it runs in a small thread pool. Tasks are sent by name, so that a web process imports neither the
tasks nor the worker. Nothing is retried here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from celery import current_app

from chat.relay.state.keys import queue_of
from chat.relay.state.task_message import GENERATE_TASK, task_template

logger = logging.getLogger(__name__)

STOP_COMMAND = "lightcone_stop"
STATS_COMMAND = "lightcone_stats"
UNLOAD_COMMAND = "lightcone_unload"
RELOAD_COMMAND = "lightcone_reload"
DRAIN_COMMAND = "lightcone_drain"
BATCHES_WAKE_TASK = "chat.batches_wake"
MAINTENANCE_QUEUE = "maintenance"
SEND_TIMEOUT_S = 4.0

_senders = ThreadPoolExecutor(max_workers=4, thread_name_prefix="celery-send")


def senders_warm() -> None:
    """Connect a thread to the broker and write the task template, which takes half a second with its imports."""
    _senders.submit(_connect)


def _connect() -> None:
    task_template()
    try:
        with current_app.producer_pool.acquire(block=True, timeout=SEND_TIMEOUT_S) as producer:
            producer.connection.ensure_connection(max_retries=1, timeout=SEND_TIMEOUT_S)
    except Exception as error:
        # Any error of the broker's client: the first request tries again.
        logger.info("the broker does not answer yet: %s", error)


def task_send(run_id: str, attempt: int, slug: str) -> None:
    """Publish the task of a run, whose id it has. Blocks; raises kombu's OperationalError and others."""
    current_app.send_task(
        GENERATE_TASK, args=(attempt,), task_id=run_id, queue=queue_of(slug), retry=False, ignore_result=True
    )


def stop_send(worker_id: str, run_id: str, outcome: str) -> None:
    """Tell a worker, `<Celery node>~<incarnation>`, to end a run. Blocks."""
    node, arguments = worker_id.partition("~")[0], {"run_id": run_id, "outcome": outcome}
    current_app.control.broadcast(STOP_COMMAND, arguments=arguments, destination=[node], reply=False)


def unload_send(name: str) -> None:
    """Tell every worker to unload a model. Blocks."""
    current_app.control.broadcast(UNLOAD_COMMAND, arguments={"name": name}, reply=False)


def reload_send(name: str) -> None:
    """Tell every worker that has loaded a model to load it anew. Blocks."""
    current_app.control.broadcast(RELOAD_COMMAND, arguments={"name": name}, reply=False)


def drain_send(node: str, is_draining: bool) -> None:
    """Tell a worker to take no new requests, or to take them again. Blocks."""
    arguments = {"is_draining": is_draining}
    current_app.control.broadcast(DRAIN_COMMAND, arguments=arguments, destination=[node], reply=False)


async def task_send_async(run_id: str, attempt: int, slug: str) -> None:
    """`task_send` from a loop. Raises TimeoutError when the broker does not answer."""
    await _in_thread(task_send, run_id, attempt, slug)


async def stop_send_async(worker_id: str, run_id: str, outcome: str) -> None:
    await _in_thread(stop_send, worker_id, run_id, outcome)


async def unload_send_async(name: str) -> None:
    """`unload_send` from a loop. Raises TimeoutError, or any error of the broker's client."""
    await _in_thread(unload_send, name)


async def batches_wake_async() -> None:
    """Wake the batch runner of a maintenance worker. Nothing is lost if that fails, as it also polls."""
    try:
        await _in_thread(
            partial(current_app.send_task, BATCHES_WAKE_TASK, queue=MAINTENANCE_QUEUE, retry=False, ignore_result=True)
        )
    except Exception as error:
        # Any error of the broker's client.
        logger.info("the batch runner was not woken: %s", error)


async def _in_thread(function: Callable[..., object], *arguments: object) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await asyncio.get_running_loop().run_in_executor(_senders, function, *arguments)
