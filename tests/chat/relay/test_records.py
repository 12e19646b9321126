"""Joined deltas keep content and order, and the record of a run what its media were."""

from hypothesis import given
from hypothesis import strategies as st

from chat.relay.state.records import join_deltas, pack_events, terminal_record, unpack_events
from engine.api import Completed, Delta, Event, Outcome, Timings, TokenLogprob, ToolCallDelta, Usage

calls = st.lists(
    st.builds(ToolCallDelta, st.integers(0, 2), st.sampled_from(["", "id"]), arguments=st.text("{}", max_size=3)),
    max_size=2,
)
deltas = st.builds(
    Delta,
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", "text"]),
    st.sampled_from([None, (TokenLogprob(1, -0.5, "a", b"a"),)]),
    st.sampled_from(["", "why"]),
    calls.map(tuple),
)


def placed(payloads):
    events, position = [], 0
    for payload in payloads:
        events.append(Event(position, len(payload.token_ids), payload))
        position += len(payload.token_ids)
    return events


def seen(events, choice):
    """Return what a client sees of a choice, piece by piece."""
    pieces = []
    for delta in (event.payload for event in events if event.payload.choice == choice):
        pieces += [("why", character) for character in delta.reasoning] + [
            ("text", character) for character in delta.text
        ]
        pieces += delta.tool_calls
    return pieces


@given(st.lists(deltas, max_size=8))
def test_joined_deltas_keep_all_content(payloads):
    """Reasoning and calls were missing in joined deltas."""
    events = placed(payloads)
    joined = join_deltas(events)
    assert unpack_events(pack_events(joined)) == joined
    for choice in (0, 1):
        assert seen(joined, choice) == seen(events, choice)
    for of in (lambda delta: delta.token_ids, lambda delta: delta.logprobs or ()):
        assert [item for event in joined for item in of(event.payload)] == [
            item for event in events for item in of(event.payload)
        ]
    assert sum(event.count for event in joined) == sum(event.count for event in events)


def test_pieces_of_one_kind_become_one_event():
    joined = join_deltas(
        placed(
            [
                Delta(0, (1,), reasoning="a"),
                Delta(0, (2,), reasoning="b"),
                Delta(0, (3,), "c"),
                Delta(0, (4,), reasoning="d"),
            ]
        )
    )
    assert [event.payload for event in joined] == [
        Delta(0, (1, 2, 3), "c", reasoning="ab"),
        Delta(0, (4,), reasoning="d"),
    ]


def test_the_record_of_a_transcription_says_how_long_the_sound_was():
    usage = Usage(60, 0, 3, audio_seconds=2.4)
    about = {"media": {"audio": {"number": 1, "bytes": 600}}}
    ended = Completed(Outcome.FINISHED, usage, Timings(0.0))
    record = terminal_record(about, ended, run_id="r", attempts=1, worker="w", ended_at=1.0)
    assert record["media"] == {"audio": {"number": 1, "bytes": 600, "duration_ms": 2400}}
