import os

import hypothesis.strategies as st
from hypothesis import given

from chat.workers.memory import UNLIMITED, Resident, memory_budget, process_memory, room_made

RESIDENTS = st.lists(
    st.builds(
        Resident, st.uuids().map(str), st.integers(0, 100), st.floats(0, 100, allow_nan=False), may_leave=st.booleans()
    ),
    max_size=8,
)


@given(RESIDENTS, st.integers(0, 300), st.integers(0, 600))
def test_only_models_that_may_leave_make_room_and_none_leaves_in_vain(
    residents: list[Resident], num_bytes: int, budget: int
) -> None:
    leaving = room_made(num_bytes, budget, residents)
    by_name = {resident.name: resident for resident in residents}
    used = sum(resident.num_bytes for resident in residents)
    if leaving is None:
        possible = sum(resident.num_bytes for resident in residents if resident.may_leave)
        assert used - possible + num_bytes > budget
        return
    assert all(by_name[name].may_leave for name in leaving)
    left = used - sum(by_name[name].num_bytes for name in leaving)
    assert left + num_bytes <= budget
    for name in leaving:
        assert left + by_name[name].num_bytes + num_bytes > budget, "it could have stayed"


def test_the_least_recently_used_model_leaves_first() -> None:
    residents = [Resident(name, 10, used_at, True) for name, used_at in (("new", 3.0), ("old", 1.0), ("middle", 2.0))]
    assert room_made(15, 40, residents) == ["old"]
    assert room_made(25, 40, residents) == ["old", "middle"]
    assert room_made(10, 40, residents) == []


def test_a_large_model_alone_leaves_if_that_is_enough() -> None:
    residents = [Resident("small", 5, 1.0, True), Resident("large", 30, 2.0, True)]
    assert room_made(20, 40, residents) == ["large"]


def test_the_memory_of_a_process_is_read_and_that_of_none_is_nothing() -> None:
    assert 2**20 < process_memory(os.getpid()) < 2**36
    assert process_memory(2**22 + 1) == 0


def test_a_budget_is_what_was_asked_for_or_a_share_of_what_there_is(monkeypatch) -> None:
    assert memory_budget(123, "cpu") == 123
    assert 2**28 < memory_budget(0, "cpu") < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def unknown(device: str) -> int:
        raise LookupError("it is not known")

    monkeypatch.setattr("chat.workers.memory.memory_of", unknown)
    assert memory_budget(0, "cuda") == UNLIMITED
