"""The Celery bootstep of a model worker, and the control commands that it answers.

Start:  python -m lightcone_site.worker   with LIGHTCONE_ROLE=model
The step builds the ModelWorker (chat.workers.model) and loads its model in a thread, so that control commands and
signals are answered meanwhile. It consumes `model.<slug>` once the model is loaded.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from functools import partial
from typing import Any

from celery import bootsteps
from celery.worker import state as worker_state
from celery.worker.control import control_command, inspect_command
from django.conf import settings
from kombu import Exchange, Queue

from chat.catalog.model_choice import NoModel
from chat.relay.commands import STATS_COMMAND, STOP_COMMAND
from chat.relay.state.keys import queue_of
from chat.workers.engine_start import engine_config
from chat.workers.exit import worker_leave
from chat.workers.model import ModelWorker
from engine.core.link import ProcessLink

logger = logging.getLogger(__name__)

ADD_CONSUMER_TIMEOUT_S = 1.0
TASKS_POLL_S = 0.01
CORES_DIED_CODE = 1
"""Exit code of a worker whose cores have died too often."""


class ModelStep(bootsteps.StartStopStep):
    """The step that holds the process's ModelWorker as `app.model_worker`.

    It consumes the queue of its model alone, whatever queues the command line names. `started_core`: see ModelWorker.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, started_core: ProcessLink | None = None, **options: Any) -> None:
        super().__init__(worker, **options)
        self._started_core = started_core
        queues = worker.app.amqp.queues
        queues.deselect(list(queues.consume_from))
        self.model_worker: ModelWorker | None = None

    def start(self, worker: Any) -> None:
        worker_id = f"{worker.hostname}~{secrets.token_hex(4)}"
        try:
            config = engine_config()
        except NoModel as error:
            logger.error("%s", error)
            return
        self.model_worker = worker.app.model_worker = ModelWorker(
            config, worker_id, on_lost=partial(worker_leave, CORES_DIED_CODE), started_core=self._started_core
        )
        queue = queue_of(self.model_worker.slug)
        # Without acknowledgements, which cost two round trips: leases and claims recover the runs of a lost worker.
        worker.app.amqp.queues.add(Queue(queue, Exchange(queue), routing_key=queue, no_ack=True))
        worker.consumer.on_task_message.add(_mark_acknowledged)

        def consume() -> None:
            """Start consuming. Repeats the command until the consumer has started and replies to it."""
            while not _is_consuming(worker, queue):
                logger.info("waiting for the consumer")

        threading.Thread(
            target=self.model_worker.load_until_ready, args=(consume,), name="model-load", daemon=True
        ).start()

    def stop(self, worker: Any) -> None:
        if self.model_worker is not None:
            deadline = time.monotonic() + settings.LIGHTCONE_DRAIN_S
            self.model_worker.announce_drain()
            # The runs of tasks that are fetched and not yet claimed would wait for the reaper. Celery forgets those
            # that it has fetched before it lost the broker: these do.
            while worker_state.reserved_requests and time.monotonic() < deadline:
                time.sleep(TASKS_POLL_S)
            self.model_worker.close(max(0.0, deadline - time.monotonic()))
            self.model_worker = None

    terminate = stop


def _mark_acknowledged(task: Any) -> None:
    """Keep Celery from acknowledging a task of a connection that it has just lost, which would end the worker."""
    task.acknowledged = True


def _is_consuming(worker: Any, queue: str) -> bool:
    try:
        return bool(
            worker.app.control.add_consumer(
                queue, destination=[worker.hostname], reply=True, timeout=ADD_CONSUMER_TIMEOUT_S
            )
        )
    except Exception as error:
        # Any error of the broker's client: the model is loaded, and a broker that is unavailable or full recovers.
        logger.warning("the broker does not answer: %s", error)
        time.sleep(ADD_CONSUMER_TIMEOUT_S)
        return False


@control_command(name=STOP_COMMAND, args=[("run_id", str), ("outcome", str)], signature="<run_id> <outcome>")
def stop_command(state: Any, run_id: str, outcome: str) -> dict[str, str]:
    """End a run early."""
    state.app.model_worker.stop_run(run_id, outcome)
    return {"ok": run_id}


@inspect_command(name=STATS_COMMAND)
def stats_command(state: Any) -> dict[str, Any]:
    """Return the engine's counters after a check of its block tables."""
    model_worker: ModelWorker = state.app.model_worker
    return model_worker.stats()
