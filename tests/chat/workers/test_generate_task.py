"""How tasks of runs come from Celery's consumer into its pool, with a real consumer, and a worker that notes what it is asked."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.worker.state import requests, reserved_requests
from kombu import Queue
from redis import Redis

import chat.tasks  # noqa: F401 - shared tasks are those of every app
from chat.relay.state.keys import Keys, queue_of
from chat.relay.state.task_message import task_message
from chat.workers import task_strategy
from lightcone_site.databases import broker_url

NUM_THREADS = 3
SLUG = "a-model"


@dataclass
class NotingWorker:
    """Takes runs when `may_take` says so; the run `bad` fails, and `worse` cannot even be begun."""

    begun: queue.SimpleQueue[tuple[str, int]] = field(default_factory=queue.SimpleQueue)
    taken: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    may_take: threading.Event = field(default_factory=threading.Event)

    def begin(self, run_id: str, attempt: int) -> Callable[[], None]:
        if run_id == "worse":
            raise RuntimeError("a defect")
        self.begun.put((run_id, attempt))

        def take() -> None:
            self.may_take.wait(10)
            if run_id == "bad":
                raise RuntimeError("a defect")
            self.taken.put(run_id)

        return take


@dataclass
class Served:
    worker: NotingWorker
    client: Redis
    queue: str
    lose_broker: Callable[[], None]

    def send(self, run_id: str, attempt: Any = 1) -> None:
        self.client.lpush(self.queue, task_message(run_id, attempt, SLUG))


@pytest.fixture(scope="module")
def consumer(valkey: str) -> Iterator[tuple[Any, Redis, str, Callable[[], None]]]:
    """A Celery app whose worker runs, a client of its broker, the list of the model's tasks, and what the worker does without a broker."""
    keys = Keys(f"test-{secrets.token_hex(4)}")
    app: Any = Celery("test", set_as_current=False, broker=broker_url(valkey))
    app.conf.update(
        broker_transport_options={"global_keyprefix": keys.celery_prefix},
        task_queues=[Queue(queue_of(SLUG), no_ack=True)],
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
    )
    options = {"pool": "threads", "concurrency": NUM_THREADS, "perform_ping_check": False, "shutdown_timeout": 10}
    with Redis.from_url(valkey) as client, start_worker(app, **options) as worker:
        yield app, client, keys.tasks(SLUG), worker.consumer.on_close
    app.close()


@pytest.fixture
def served(consumer: tuple[Any, Redis, str, Callable[[], None]]) -> Iterator[Served]:
    app, client, tasks, lose_broker = consumer
    app.model_worker = NotingWorker()
    yield Served(app.model_worker, client, tasks, lose_broker)
    app.model_worker.may_take.set()


def test_runs_are_asked_for_at_once_and_taken_by_threads_of_the_pool(served: Served) -> None:
    served.send("one")
    assert served.worker.begun.get(timeout=10) == ("one", 1)
    assert served.worker.taken.empty()
    served.worker.may_take.set()
    assert served.worker.taken.get(timeout=10) == "one"


def test_no_more_tasks_are_fetched_than_threads_are_free(served: Served) -> None:
    runs = [str(number) for number in range(NUM_THREADS + 2)]
    for run_id in runs:
        served.send(run_id)
    first = [served.worker.begun.get(timeout=10)[0] for _ in range(NUM_THREADS)]
    assert first == runs[:NUM_THREADS]
    assert served.client.llen(served.queue) == 2
    assert {request.info()["args"] for request in list(reserved_requests)} == {(run_id, 1) for run_id in first}
    served.worker.may_take.set()
    assert {served.worker.taken.get(timeout=10) for _ in runs} == set(runs)


def test_tasks_in_hand_count_on_where_the_broker_is_lost(served: Served) -> None:
    runs = [str(number) for number in range(NUM_THREADS)]
    for run_id in runs:
        served.send(run_id)
    assert [served.worker.begun.get(timeout=10)[0] for _ in runs] == runs
    served.lose_broker()
    assert len(reserved_requests) == NUM_THREADS
    served.worker.may_take.set()
    assert {served.worker.taken.get(timeout=10) for _ in runs} == set(runs)


class HandedOut:
    """A consumer of two threads, which take what they were handed when a test says so. `num_woken`: how often its loop was."""

    num_processes = 2

    def __init__(self) -> None:
        self.pool = self.hub = self
        self.tasks: list[Callable[[], None]] = []
        self.num_woken = 0

    def apply_async(self, take: Callable[..., None], *, args: tuple[Any, ...], callback: Any) -> None:
        self.tasks.append(lambda: take(*args))

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        callback(*args)
        self.num_woken += 1


def test_the_first_thread_that_is_free_wakes_a_consumer_that_found_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fetched the next task when it happened to look, a second later."""
    in_hand: set[Any] = set()
    monkeypatch.setattr(task_strategy, "reserved_requests", in_hand)
    monkeypatch.setattr(task_strategy, "task_reserved", in_hand.add)
    monkeypatch.setattr(task_strategy, "task_accepted", lambda _: None)
    monkeypatch.setattr(task_strategy, "task_ready", in_hand.discard)
    consumer, worker = HandedOut(), NotingWorker()
    worker.may_take.set()
    hand_out = task_strategy.run_strategy(
        SimpleNamespace(name="chat.generate"), SimpleNamespace(model_worker=worker), consumer
    )
    for num_tasks, num_woken in ((1, 0), (2, 1), (1, 1)):
        for number in range(num_tasks):
            hand_out(SimpleNamespace(headers={"id": f"{number}"}, payload=[[f"{number}", 1], {}, {}]))
        while consumer.tasks:
            consumer.tasks.pop()()
        assert consumer.num_woken == num_woken
    assert not in_hand


def test_a_task_that_fails_or_is_none_of_ours_holds_up_no_other(served: Served) -> None:
    served.worker.may_take.set()
    for run_id in ("bad", "worse") * NUM_THREADS:
        served.send(run_id)
    served.send("odd", attempt="first")
    served.send("good")
    assert served.worker.taken.get(timeout=10) == "good"
    assert "odd" not in requests
