"""Requests that write down speech: how many go on at once, of a tenant and of the whole core, and whose turn it is."""

from __future__ import annotations

import dataclasses

import pytest

from engine.messages import DefineMedia, SpeechOptions
from engine.scheduling.transcriptions import (
    MOST_BEGUN,
    MOST_BEGUN_S,
    SHORT_S,
    SIDE_BY_SIDE,
    Transcription,
    Transcriptions,
)
from tests.engine.scheduling.sequences import make_sequence

HOUR_S = 3_600


@pytest.fixture
def queue():
    return Transcriptions()


def add(queue, seq_id, tenant, seconds):
    request = dataclasses.replace(make_sequence(seq_id, [], tenant=tenant).request, speech=SpeechOptions())
    queue.add(Transcription(request, DefineMedia(str(seq_id), 1, []), seconds))


def begun(queue, num_steps=100):
    """Return the requests that have had a turn."""
    ids = set()
    for _ in range(num_steps):
        one = queue.next()
        ids.add(one.seq_id)
        queue.charge(one, 1.0)
    assert queue.check_integrity() == ""
    assert queue.stats().num_running >= len(ids)
    return ids


def test_a_tenant_has_a_few_requests_at_once_and_the_core_not_many_more(queue):
    for seq_id in range(10):
        add(queue, seq_id, "one", 10)
    assert begun(queue) == set(range(SIDE_BY_SIDE))
    for seq_id in range(10, 20):
        add(queue, seq_id, f"tenant {seq_id}", 10)
    assert queue.stats().num_running == SIDE_BY_SIDE
    assert begun(queue) == {*range(SIDE_BY_SIDE), *range(10, 10 + MOST_BEGUN - SIDE_BY_SIDE)}
    assert queue.stats().num_running == MOST_BEGUN
    assert queue.remove(0)
    assert 10 + MOST_BEGUN - SIDE_BY_SIDE in begun(queue), "the tenant that has had nothing is next"


def test_the_sounds_of_a_core_are_bounded_by_their_seconds_but_short_ones_go_on(queue):
    for seq_id in range(4):
        add(queue, seq_id, f"tenant {seq_id}", HOUR_S)
    add(queue, 4, "tenant 4", SHORT_S)
    assert begun(queue) == {0, 1, 4}
    assert queue.remove(0)
    assert begun(queue) == {1, 2, 4}


def test_a_sound_above_the_bound_goes_on_alone(queue):
    add(queue, 1, "one", 2 * MOST_BEGUN_S)
    add(queue, 2, "two", 600)
    assert begun(queue) == {1}
    assert queue.remove(1)
    assert begun(queue) == {2}


def test_room_is_kept_for_a_long_sound_that_waits(queue):
    for seq_id in range(4):
        add(queue, seq_id, "one", MOST_BEGUN_S / 4)
    assert begun(queue) == {0, 1, 2, 3}
    add(queue, 4, "two", MOST_BEGUN_S / 2)
    add(queue, 5, "three", MOST_BEGUN_S / 4)
    assert queue.remove(0)
    assert begun(queue) == {1, 2, 3}
    assert queue.remove(1)
    assert begun(queue) == {2, 3, 4}
