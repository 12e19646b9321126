"""The Celery bootstep of a worker process that hosts models, and the control commands that it answers.

Start:  python -m lightcone_site.worker   with LIGHTCONE_ROLE=model
The step builds the WorkerHost (chat.workers.host), which loads models in threads, so that control commands and signals
are answered meanwhile. It consumes `model.<slug>` while that model is loaded.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery import bootsteps
from celery.worker import state as worker_state
from celery.worker.control import control_command, inspect_command
from django.conf import settings
from kombu import Exchange, Queue

from chat.catalog.model_choice import NoModel
from chat.relay.commands import DRAIN_COMMAND, RELOAD_COMMAND, STATS_COMMAND, STOP_COMMAND, UNLOAD_COMMAND
from chat.relay.state.keys import Keys, queue_of
from chat.relay.valkey import valkey_connect_blocking
from chat.workers.engine_start import engine_config, need_of
from chat.workers.host import WorkerHost
from chat.workers.memory import memory_budget
from chat.workers.offers import Offer, offers_read
from engine.core.link import ProcessLink

logger = logging.getLogger(__name__)

COMMAND_TIMEOUT_S = 1.0
POLL_S = 0.01


class HostStep(bootsteps.StartStopStep):
    """The step that holds the process's WorkerHost as `app.worker_host`.

    It consumes the queues of loaded models alone, whatever queues the command line names. `started_core`: see
    WorkerHost.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, started_core: ProcessLink | None = None, **options: Any) -> None:
        super().__init__(worker, **options)
        self._started_core = started_core
        queues = worker.app.amqp.queues
        queues.deselect(list(queues.consume_from))
        self.host: WorkerHost | None = None

    def start(self, worker: Any) -> None:
        try:
            config = engine_config()
        except NoModel as error:
            logger.error("%s", error)
            return
        worker.consumer.on_task_message.add(_mark_acknowledged)
        budget = memory_budget(settings.LIGHTCONE_MODEL_MEMORY_BYTES, config.device)
        self.host = worker.app.worker_host = WorkerHost(
            worker.hostname,
            first=Offer(config, idle_s=settings.LIGHTCONE_MODEL_IDLE_S),
            read_offers=lambda: offers_read(config),
            need_of=lambda config: need_of(config, budget),
            consumer=TaskConsumer(worker),
            client=valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL),
            keys=Keys(settings.LIGHTCONE_DEPLOYMENT),
            budget=budget,
            is_bounded=bool(settings.LIGHTCONE_MODEL_MEMORY_BYTES),
            started_core=self._started_core,
        )
        self.host.start()

    def stop(self, worker: Any) -> None:
        if self.host is not None:
            deadline = time.monotonic() + settings.LIGHTCONE_DRAIN_S
            self.host.announce_drain()
            # The runs of tasks that are fetched and not yet claimed would wait for the reaper. Celery forgets those
            # that it has fetched before it lost the broker: these do.
            while worker_state.reserved_requests and time.monotonic() < deadline:
                time.sleep(POLL_S)
            self.host.close(max(0.0, deadline - time.monotonic()))
            self.host = None

    terminate = stop


class TaskConsumer:
    """Consumes the queues of models through the control commands of this Celery worker."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def start(self, slug: str) -> None:
        """Consume a model's queue; repeat until the worker does."""
        queue = queue_of(slug)
        # Without acknowledgements, which cost two round trips: leases and claims recover the runs of a lost worker.
        self._worker.app.amqp.queues.add(Queue(queue, Exchange(queue), routing_key=queue, no_ack=True))
        while not self._command("add_consumer", queue):
            logger.info("waiting for the consumer of %s", queue)

    def stop(self, slug: str) -> None:
        """Consume a model's queue no more; repeat until the worker does not."""
        queue = queue_of(slug)
        self._worker.app.amqp.queues.deselect(queue)  # a broker that comes back finds it deselected
        is_cancelled = self._command("cancel_consumer", queue)
        while not is_cancelled or self._worker.consumer.task_consumer.consuming_from(queue):
            logger.info("waiting for the consumer of %s to end", queue)
            time.sleep(POLL_S)
            is_cancelled = self._command("cancel_consumer", queue)

    def has_fetched(self, slug: str) -> bool:
        queue = queue_of(slug)
        return any(queue_of_task(request.delivery_info) == queue for request in list(worker_state.reserved_requests))

    def _command(self, name: str, queue: str) -> bool:
        try:
            send = getattr(self._worker.app.control, name)
            return bool(send(queue, destination=[self._worker.hostname], reply=True, timeout=COMMAND_TIMEOUT_S))
        except Exception as error:
            # Any error of the broker's client: a broker that is unavailable or full recovers.
            logger.warning("the broker does not answer: %s", error)
            time.sleep(COMMAND_TIMEOUT_S)
            return False


def queue_of_task(delivery_info: Any) -> str:
    """Return the name of the queue that a task came from."""
    return str((delivery_info or {}).get("routing_key") or "")


def _mark_acknowledged(task: Any) -> None:
    """Keep Celery from acknowledging a task of a connection that it has just lost, which would end the worker."""
    task.acknowledged = True


@control_command(name=STOP_COMMAND, args=[("run_id", str), ("outcome", str)], signature="<run_id> <outcome>")
def stop_command(state: Any, run_id: str, outcome: str) -> dict[str, str]:
    """End a run early."""
    state.app.worker_host.stop_run(run_id, outcome)
    return {"ok": run_id}


@control_command(name=UNLOAD_COMMAND, args=[("name", str)], signature="<name>")
def unload_command(state: Any, name: str) -> dict[str, str]:
    """Unload a model once its runs have ended."""
    state.app.worker_host.unload(name)
    return {"ok": name}


@control_command(name=RELOAD_COMMAND, args=[("name", str)], signature="<name>")
def reload_command(state: Any, name: str) -> dict[str, str]:
    """Load a model anew once its runs have ended."""
    state.app.worker_host.reload(name)
    return {"ok": name}


@control_command(name=DRAIN_COMMAND, args=[("is_draining", bool)], signature="<is_draining>")
def drain_command(state: Any, is_draining: bool) -> dict[str, str]:
    """Take no new requests, or take them again."""
    state.app.worker_host.drain(bool(is_draining))
    return {"ok": str(is_draining)}


@inspect_command(name=STATS_COMMAND)
def stats_command(state: Any) -> dict[str, Any]:
    """Return the counters of each loaded model's engine after a check of its block tables."""
    stats: dict[str, Any] = state.app.worker_host.stats()
    return stats
