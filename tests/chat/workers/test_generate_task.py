"""The task of a run under a real Celery consumer, with a worker that records the calls it gets."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.worker.state import requests, reserved_requests
from kombu import Queue
from redis import Redis

import chat.tasks  # noqa: F401 - shared tasks are those of every app
from chat.relay.state.keys import Keys, queue_of
from chat.relay.state.task_message import GENERATE_TASK, first_task
from chat.workers.host_step import HostStep
from lightcone_site.databases import broker_url

NUM_THREADS = 3
SLUG = "a-model"


@dataclass
class RecordingHost:
    """Takes runs once `may_take` is set. The run `bad` fails."""

    begun: queue.SimpleQueue[tuple[str, int]] = field(default_factory=queue.SimpleQueue)
    taken: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    may_take: threading.Event = field(default_factory=threading.Event)
    drain_announced: threading.Event = field(default_factory=threading.Event)
    closed: queue.SimpleQueue[float] = field(default_factory=queue.SimpleQueue)

    def take(self, slug: str, run_id: str, attempt: int) -> None:
        assert slug == SLUG
        self.begun.put((run_id, attempt))
        self.may_take.wait(10)
        if run_id == "bad":
            raise RuntimeError("a defect")
        self.taken.put(run_id)

    def announce_drain(self) -> None:
        self.drain_announced.set()

    def close(self, drain_s: float) -> None:
        self.closed.put(drain_s)


@dataclass
class Served:
    app: Any
    worker: RecordingHost
    client: Redis
    queue: str
    lose_broker: Callable[[], None]

    def send(self, run_id: str) -> None:
        self.client.lpush(self.queue, first_task(run_id, SLUG))

    def send_all(self, number: int) -> set[str]:
        """Send more tasks than there are threads, and wait until the consumer has fetched all of them."""
        runs = {f"run {index}" for index in range(number)}
        for run_id in runs:
            self.send(run_id)
        for _ in range(NUM_THREADS):
            self.worker.begun.get(timeout=10)
        while len(reserved_requests) < number:
            threading.Event().wait(0.001)
        return runs


@pytest.fixture(scope="module")
def consumer(valkey: str) -> Iterator[tuple[Any, Redis, str, Callable[[], None]]]:
    """Yield a Celery app with a running worker, its broker's client, the model's tasks and the broker-loss hook."""
    keys = Keys(f"test-{secrets.token_hex(4)}")
    app: Any = Celery("test", set_as_current=False, broker=broker_url(valkey))
    app.conf.update(
        broker_transport_options={"global_keyprefix": keys.celery_prefix},
        task_queues=[Queue(queue_of(SLUG), no_ack=True)],
        worker_hijack_root_logger=False,
    )
    options = {"pool": "threads", "concurrency": NUM_THREADS, "perform_ping_check": False, "shutdown_timeout": 10}
    with Redis.from_url(valkey) as client, start_worker(app, **options) as worker:
        yield app, client, keys.tasks(SLUG), worker.consumer.on_close
    app.close()


@pytest.fixture
def served(consumer: tuple[Any, Redis, str, Callable[[], None]]) -> Iterator[Served]:
    app, client, tasks, lose_broker = consumer
    app.worker_host = RecordingHost()
    yield Served(app, app.worker_host, client, tasks, lose_broker)
    app.worker_host.may_take.set()


def test_a_task_takes_the_run_of_its_id(served: Served) -> None:
    served.send("one")
    assert served.worker.begun.get(timeout=10) == ("one", 1)
    assert served.worker.taken.empty()
    served.worker.may_take.set()
    assert served.worker.taken.get(timeout=10) == "one"


def test_a_task_of_the_previous_version_takes_its_run(served: Served) -> None:
    served.worker.may_take.set()
    served.app.send_task(GENERATE_TASK, args=("one", 2), queue=queue_of(SLUG))
    assert served.worker.begun.get(timeout=10) == ("one", 2)
    assert served.worker.taken.get(timeout=10) == "one"


def test_tasks_beyond_the_threads_wait_for_a_free_thread(served: Served) -> None:
    """In the queue they would wait up to a second for Celery's next poll."""
    runs = served.send_all(NUM_THREADS + 2)
    assert served.client.llen(served.queue) == 0
    served.worker.may_take.set()
    assert {served.worker.taken.get(timeout=10) for _ in runs} == runs


def test_fetched_tasks_run_after_the_broker_is_lost(served: Served) -> None:
    runs = served.send_all(NUM_THREADS + 2)
    served.lose_broker()
    served.worker.may_take.set()
    assert {served.worker.taken.get(timeout=10) for _ in runs} == runs


def test_a_stop_waits_for_fetched_tasks_before_it_closes_the_worker(served: Served) -> None:
    runs = served.send_all(NUM_THREADS + 2)
    step = HostStep(type("Controller", (), {"app": served.app}))
    step.host = served.worker
    stopping = threading.Thread(target=step.stop, args=(None,))
    stopping.start()
    assert served.worker.drain_announced.wait(10)
    assert served.worker.closed.empty()
    served.worker.may_take.set()
    assert served.worker.closed.get(timeout=10) > 0
    assert {served.worker.taken.get_nowait() for _ in runs} == runs
    stopping.join()


def test_a_failing_or_malformed_task_does_not_delay_others(served: Served) -> None:
    served.worker.may_take.set()
    for _ in range(2 * NUM_THREADS):
        served.send("bad")
        served.app.send_task(GENERATE_TASK, args=("odd", 1, "arguments"), task_id="odd", queue=queue_of(SLUG))
    served.send("good")
    assert served.worker.taken.get(timeout=10) == "good"
    while reserved_requests:
        threading.Event().wait(0.001)
    assert requests == {}
