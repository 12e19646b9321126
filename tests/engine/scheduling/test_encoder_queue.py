"""The turns of tenants at the encoder, and which items share a step."""

from __future__ import annotations

import random

import pytest

from engine.scheduling.encoder_queue import EncoderQueue, WaitingItem


def queue_of(*items, max_tokens=1):
    """Return a queue of items, each written "tenant number", with options."""
    queue = EncoderQueue(max_tokens)
    for name, options in items:
        add(queue, name, **options)
    return queue


def add(queue, key, *, num_tokens=10, form="square", priority=0):
    queue.add(WaitingItem(key, key[0], priority, num_tokens, form))


def steps(queue):
    """Return the items of each step until none waits."""
    found = []
    while keys := queue.next():
        assert queue.next() == keys, "asking changes nothing"
        queue.begin(keys)
        for key in keys:
            queue.remove(key)
        found.append(keys)
    return found


def test_one_item_of_a_tenant_does_not_wait_for_fifty_of_another():
    queue = queue_of(*((f"a{number}", {}) for number in range(50)))
    queue.begin(queue.next())
    add(queue, "b0")
    queue.remove("a0")
    assert queue.next() == ["b0"]


def test_tenants_get_as_many_tokens_in_turn():
    small = [(f"a{number}", {}) for number in range(8)]
    large = [(f"b{number}", {"num_tokens": 40}) for number in range(2)]
    found = [key for (key,) in steps(queue_of(*small, *large))]
    assert found == ["a0", "b0", "a1", "a2", "a3", "b1", "a4", "a5", "a6", "a7"]


def test_who_comes_back_again_and_again_does_not_keep_others_waiting():
    queue, found = queue_of(*((f"a{number}", {}) for number in range(4)), ("b0", {})), []
    for number in range(1, 6):
        (key,) = queue.next()
        queue.begin([key])
        add(queue, f"b{number}")  # it comes while another one is encoded
        queue.remove(key)
        found.append(key[0])
    assert found.count("a") >= 2


def test_a_better_priority_goes_first():
    queue = queue_of(("a0", {}), ("b0", {"priority": 5}), ("c0", {"priority": -1}))
    add(queue, "b0", priority=-2)
    assert steps(queue) == [["b0"], ["c0"], ["a0"]]


def test_items_of_one_form_share_a_step_within_the_budget():
    items = [("a0", {}), ("a1", {"form": "tall"}), ("a2", {}), ("b0", {}), ("b1", {"form": None}), ("b2", {})]
    assert steps(queue_of(*items, max_tokens=30)) == [["a0", "b0", "a2"], ["b1"], ["a1"], ["b2"]]


def test_an_item_beyond_the_budget_is_alone():
    items = [("a0", {"num_tokens": 500}), ("a1", {}), ("a2", {})]
    assert steps(queue_of(*items, max_tokens=20)) == [["a0"], ["a1", "a2"]]


def test_what_is_not_needed_any_more_is_no_part_of_a_step():
    queue = queue_of(("a0", {}), ("a1", {}), ("a2", {}), max_tokens=100)
    queue.remove("a1")
    queue.remove("unknown")
    assert steps(queue) == [["a0", "a2"]]
    assert queue.next() == []


@pytest.mark.parametrize("seed", range(20))
def test_every_item_has_its_turn_once_and_no_step_is_too_large(seed):
    choose = random.Random(seed)
    queue, sizes = EncoderQueue(64), {}
    for number in range(60):
        key = f"{choose.choice('abc')}{number}"
        sizes[key] = choose.randrange(1, 100)
        form = choose.choice(["square", "tall", None])
        queue.add(WaitingItem(key, key[0], choose.randrange(3), sizes[key], form))
    found = steps(queue)
    assert sorted(key for keys in found for key in keys) == sorted(sizes)
    assert all(len(keys) == 1 or sum(map(sizes.get, keys)) <= 64 for keys in found)
