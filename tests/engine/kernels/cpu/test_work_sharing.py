"""With any order of threads each part runs once and in turn, and no thread sleeps for ever.

The functions are those of work_sharing.py, one shared integer at a time. Reordering by the processor is not simulated.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.cpu import work_sharing
from tests.engine.kernels.cpu.interleaved import World

PROGRAMS = st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=4)
"""The parts of each operation, of one program after another."""


@given(PROGRAMS, st.integers(0, 4), st.integers(0, 1 << 32))
def test_each_part_runs_once_in_its_turn_and_all_threads_return(programs, num_helpers, seed):
    World(programs, num_helpers).run(Random(seed))


@given(PROGRAMS, st.integers(1, 3), st.integers(0, 1 << 32), st.integers(0, 12))
def test_operations_stay_distinct_when_their_numbers_wrap_around(programs, num_helpers, seed, left):
    """Wrapping takes months of steps. A thread that confused two operations would skip a part."""
    World(programs, num_helpers, work_sharing.NUMBER_MASK - left).run(Random(seed))


@pytest.mark.parametrize(("parts", "num_woken"), [(1, 0), (2, 2), (5, 2)])
def test_sleeping_threads_are_woken_for_several_parts(parts, num_woken):
    world = World([[parts]], 2)
    for helper in (1, 2):
        world.run_until_asleep(helper)
    assert world.posts_of_first() == num_woken
