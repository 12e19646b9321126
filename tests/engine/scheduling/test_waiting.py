from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.waiting import WaitingQueue
from tests.engine.scheduling.sequences import make_sequence


def alone(tenant, priority):
    raise AssertionError("nobody is compared with others where there are none")


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=30))
def test_the_queue_is_ordered_by_priority_then_arrival(entries):
    queue = WaitingQueue()
    kept = []
    for arrival, (priority, is_removed) in enumerate(entries):
        sequence = make_sequence(arrival, [1], priority=priority)
        sequence.arrival = arrival
        queue.add(sequence)
        if is_removed:
            queue.remove(sequence)
        else:
            kept.append((priority, arrival))
    assert [(sequence.priority, sequence.arrival) for sequence in queue.in_turn(len(queue), alone)] == sorted(kept)
