"""Places for slow work are shared fairly among tenants."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.slow_work import LONG_TEXT, MAX_READERS, MAX_THREADS, Places, SlowWork
from lightcone_site.worker import THREADS
from tests.examples import examples


def most(places, tenant):
    """Take places for a tenant without waiting; return their number."""
    count = 0
    while places.take(tenant, 0):
        count += 1
    return count


def test_a_tenant_holds_at_most_half_of_the_free_places():
    places = Places(12)
    assert [most(places, tenant) for tenant in "abcde"] == [6, 3, 2, 1, 0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_single_tenant_always_gets_a_place(count):
    assert most(Places(count), "a") == (count + 1) // 2


def test_a_returned_place_goes_to_the_tenant_with_the_fewest():
    places = Places(4)
    for tenant in ("a", "a", "b", "c"):
        assert places.take(tenant, 0)
    order = []

    def wait(tenant):
        places.take(tenant)
        order.append(tenant)

    threads = []
    for tenant in ("a", "b", "d"):
        threads.append(threading.Thread(target=wait, args=(tenant,), daemon=True))
        threads[-1].start()
        while len(places._waiting) < len(threads):
            threading.Event().wait(0.001)
    places.give_back("a")
    threads[-1].join(10)
    assert order == ["d"], "though it came last"
    for tenant in ("a", "b", "c"):
        places.give_back(tenant)
    for thread in threads:
        thread.join(10)
    assert sorted(order) == ["a", "b", "d"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 8))
@examples(100)
def test_taken_and_returned_places_balance(acts, count):
    places, held = Places(count), Counter()
    for tenant, takes in acts:
        if takes:
            is_free = held[tenant] < count - held.total()
            assert places.take(tenant, 0) == is_free
            held[tenant] += is_free
        elif held[tenant]:
            places.give_back(tenant)
            held[tenant] -= 1
    assert +held == +places._taken


def test_after_a_wait_in_vain_further_work_of_the_tenant_is_refused_at_once(monkeypatch):
    """Each request of a flood held a thread for a quarter of a second and delayed all other tenants."""
    places, waits = Places(3), []

    def wait_for(is_free, timeout_s):
        waits.append(timeout_s)
        return is_free()

    monkeypatch.setattr(places._changed, "wait_for", wait_for)
    assert [places.take("a", 0.25) for _ in range(5)] == [True, True, False, False, False]
    assert places.take("b", 0.25)
    assert not places.take("c", 0.25)
    assert waits == [0.25, 0.25, 0.25, 0, 0, 0.25, 0.25]
    places.give_back("a")
    assert places.take("c", 0.25)
    assert not places.take("a", 0.25)
    assert not places.take("a", 0.25)
    assert waits[-3:] == [0.25, 0.25, 0]


def test_a_burst_of_short_work_keeps_waiting_while_places_return(monkeypatch):
    places, waits = Places(1), []

    def wait_for(is_free, timeout_s):
        waits.append(timeout_s)
        if len(waits) == 2:  # during the wait a place returns and other work of the tenant takes it at once
            places._changed.release()
            places.give_back("a")
            places._changed.acquire()
            places._taken["a"] += 1
        return is_free()

    monkeypatch.setattr(places._changed, "wait_for", wait_for)
    assert [places.take("a", 0.25) for _ in range(3)] == [True, False, False]
    assert waits == [0.25, 0.25, 0.25]


def test_work_beyond_a_tenants_thread_share_is_refused_and_others_served():
    work = SlowWork(max_threads=4, patience_s=0.0)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(work.of("greedy"))
        with pytest.raises(EngineUnavailable, match="at most 2") as refused, work.of("greedy"):
            pass
        assert refused.value.code is ErrorCode.OVERLOADED
        held.enter_context(work.of("witness"))
    with work.of("greedy"):
        pass


def test_a_worker_has_more_threads_than_slow_work_may_hold():
    assert THREADS["model"] > MAX_THREADS


def test_long_texts_of_a_tenant_are_read_two_at_a_time_and_short_ones_freely():
    work = SlowWork(max_threads=2, patience_s=0.0)
    with work.on_text(LONG_TEXT, "greedy"):
        with work.on_text(LONG_TEXT - 1, "greedy"):
            pass
        with pytest.raises(EngineUnavailable), work.on_text(LONG_TEXT, "greedy"):
            pass
        with work.on_text(LONG_TEXT, "witness"):
            pass
    assert most(Places(MAX_READERS), "greedy") == 2
