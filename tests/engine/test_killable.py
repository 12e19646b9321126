"""Calls in a child process: answers, refusals, and children that hang, use too much memory or die."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

import pytest

from engine.api import EngineFailure, EngineUnavailable, ErrorCode, RequestError
from engine.killable import CALL_CPU_S, KillableExceeded, KillablePool, KillableProcess, LargeResult
from engine.slow_work import SlowWork

MEMORY = 256 << 20


def work(kind: str, value: object = None) -> object:
    """Work that the child runs."""
    if kind == "hang":
        while True:
            pass
    if kind == "swallow":
        return len("x" * (2 * MEMORY))
    if kind == "die":
        os._exit(3)
    if kind == "refuse":
        raise RequestError(ErrorCode.INVALID_VALUE, "no", "field")
    if kind == "defect":
        raise ZeroDivisionError
    if kind == "large":
        return LargeResult({"rows": 3}, memoryview(bytes(str(value), "ascii") * (MEMORY // 16)))
    if kind == "nice":
        return os.nice(0)
    if kind == "limit":
        return resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()
    if kind == "hold":
        Path(str(value)).write_text("")
        while Path(str(value)).exists():
            time.sleep(0.01)
    return [value, os.getpid()]


@pytest.fixture
def process():
    made = KillableProcess("tests.engine.test_killable:work", MEMORY)
    yield made
    made.close()


def test_a_call_is_answered_by_one_and_the_same_child(process):
    first, pid = process.call("echo", {"a": [1, "x"]}, timeout_s=30)
    assert first == {"a": [1, "x"]}
    assert process.call("echo", None, timeout_s=30) == [None, pid]
    assert pid != os.getpid()


def test_large_bytes_come_beside_their_value(process):
    for _ in range(3):  # the child keeps none of them
        value, data = process.call("large", "abcdefgh", timeout_s=30)
        assert (value, len(data), data[:9]) == ({"rows": 3}, MEMORY // 2, b"abcdefgha")


def test_a_refusal_is_raised_unchanged_and_the_child_survives(process):
    with pytest.raises(RequestError) as caught:
        process.call("refuse", timeout_s=30)
    assert (caught.value.code, caught.value.message, caught.value.param) == (ErrorCode.INVALID_VALUE, "no", "field")
    assert process.call("echo", 1, timeout_s=30)[0] == 1


def test_a_defect_in_the_child_is_an_engine_failure(process):
    with pytest.raises(EngineFailure):
        process.call("defect", timeout_s=30)
    assert process.call("echo", 1, timeout_s=30)[0] == 1


@pytest.mark.parametrize(
    ("kind", "timeout_s", "reason"), [("hang", 0.2, "time"), ("swallow", 30, "memory"), ("die", 30, "memory")]
)
def test_work_that_exceeds_its_bounds_is_killed_and_the_next_call_is_served(process, kind, timeout_s, reason):
    process.start()
    with pytest.raises(KillableExceeded) as caught:
        process.call(kind, timeout_s=timeout_s)
    assert caught.value.reason == reason
    assert process.call("echo", 1, timeout_s=30)[0] == 1


def test_a_new_child_is_prepared_before_its_calls():
    made = KillableProcess("tests.engine.test_killable:prepared", MEMORY, first_call=("prepare", 7))
    try:
        assert made.call("ask", timeout_s=30) == 7
        made.close()
        assert made.call("ask", timeout_s=30) == 7
    finally:
        made.close()


PREPARED = []


def prepared(word: str, value: object = None) -> object:
    """Work that the prepared child runs."""
    if word == "prepare":
        PREPARED.append(value)
    return PREPARED[0]


def test_a_child_ends_by_itself_after_its_parent(process):
    """A child in an endless template stayed for ever when its worker was killed."""
    assert 0 < process.call("limit", timeout_s=30) <= CALL_CPU_S


def test_a_child_can_run_with_lower_priority():
    pool = KillablePool("tests.engine.test_killable:work", 1, MEMORY, niceness=3)
    try:
        assert pool.call("nice", timeout_s=30) == os.nice(0) + 3
    finally:
        pool.close()


def hold(pool, path, tenant):
    """Run a call of a tenant until the file is deleted; return once it has begun."""
    thread = threading.Thread(target=lambda: pool.call("hold", str(path), timeout_s=30, tenant=tenant))
    thread.start()
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return thread


def test_a_busy_pool_refuses_calls_after_a_wait_and_recovers(tmp_path):
    pool = KillablePool("tests.engine.test_killable:work", 1, MEMORY, work=SlowWork(max_threads=1, patience_s=0.0))
    holder = hold(pool, tmp_path / "held", "")
    try:
        with pytest.raises(EngineUnavailable) as caught:
            pool.call("echo", timeout_s=30)
        assert caught.value.code == ErrorCode.OVERLOADED
        (tmp_path / "held").unlink()
        holder.join()
        assert pool.call("echo", 1, timeout_s=30)[0] == 1
    finally:
        pool.close()


def test_a_tenant_with_its_full_share_of_children_leaves_one_for_others(tmp_path):
    """Ten small PDFs of one project kept those of all others waiting for 10 s each."""
    pool = KillablePool("tests.engine.test_killable:work", 2, MEMORY)
    holder = hold(pool, tmp_path / "held", "greedy")
    waiter = threading.Thread(target=lambda: pool.call("echo", timeout_s=30, tenant="greedy"))
    waiter.start()
    try:
        assert pool.call("echo", 1, timeout_s=30, tenant="witness")[0] == 1
        assert waiter.is_alive()
        (tmp_path / "held").unlink()
        holder.join()
        waiter.join()
    finally:
        pool.close()
