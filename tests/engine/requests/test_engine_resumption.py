"""A resumed run continues where the log of its earlier attempt ends."""

import pytest

from engine.api import (
    Admitted,
    Delta,
    Event,
    Failed,
    StopRules,
    Usage,
)
from engine.engine import Resume
from tests.engine.scripted_core import READY
from tests.engine.stage import check_positions, output
from tests.engine.tiny_tokenizer import IM_END


def interrupted(events, keep):
    """Return the first events of a run, as a log that broke off."""
    return Resume(tuple(events[:keep]))


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_resumed_run_continues_at_the_next_position(make_stage, keep):
    stop = StopRules(stop=("bad",), max_tokens=20)
    first = make_stage()
    first.submit(stop=stop)
    (sequence,) = first.core.hear_sequences()
    for text in (b"a b", b"a", b"x bad"):
        first.core.say(output(sequence, text))
    events = first.events_to_end()
    texts = "".join(getattr(event.payload, "text", "") for event in events)
    assert texts == "a bax "

    second = make_stage()
    resume = interrupted(events, keep)
    second.submit(stop=stop, resume=resume)
    (again,) = second.core.hear_sequences()
    if keep:
        assert again.sampling.seed == sequence.sampling.seed
    logged = b"a b" * (keep > 1) + b"a" * (keep > 2)
    assert bytes(again.output_ids) == logged
    for token in b"a bax bad"[len(logged) :]:
        second.core.say(output(again, [token]))
    resumed = second.events_to_end()
    check_positions([*resume.events, *resumed])
    assert "".join(getattr(event.payload, "text", "") for event in [*resume.events, *resumed]) == texts
    assert resumed[-1].payload.usage == events[-1].payload.usage
    assert sum(isinstance(event.payload, Admitted) for event in [*resume.events, *resumed]) == 1


@pytest.mark.parametrize("finish", ["length", "stop"])
def test_a_run_whose_end_was_not_logged_ends_when_it_is_resumed(make_stage, finish):
    first = make_stage()
    first.submit(stop=StopRules(max_tokens=2))
    (sequence,) = first.core.hear_sequences()
    first.core.say(output(sequence, [97, 98] if finish == "length" else [IM_END], finish))
    events = first.events_to_end()
    second = make_stage()
    second.submit(stop=StopRules(max_tokens=2), resume=interrupted(events, 2))
    resumed = second.events_to_end()
    assert [event.payload for event in resumed][:-1] == [event.payload for event in events][2:-1]
    assert resumed[-1].payload.usage.completion_tokens == events[-1].payload.usage.completion_tokens
    check_positions([*events[:2], *resumed])
    assert second.core.has_heard_all()


def test_a_resumed_run_may_start_at_a_later_position(stage):
    stage.submit(resume=Resume((), next_position=7))
    ((event,),) = stage.publication().values()
    assert (event.start, type(event.payload)) == (7, Admitted)


def test_a_resumed_run_is_limited_to_the_context_of_its_new_worker(stage):
    """A limit admitted by another worker exceeded this one's context."""
    stage.submit(resume=Resume((Event(0, 1, Admitted(21, 4000, 7)), Event(1, 1, Delta(0, (97,), "a")))))
    (sequence,) = stage.core.hear_sequences()
    assert len(sequence.prompt_ids) + sequence.max_tokens == READY.max_model_len


def test_a_resumed_run_that_cannot_be_served_any_more_fails(stage):
    """Tokens of the earlier attempt are counted even if none follow."""
    logged = (Event(0, 1, Admitted(1, 2, 3)), Event(1, 1, Delta(0, (97,), "a")))
    stage.submit(text="x" * 5000, resume=Resume(logged))
    ((event,),) = stage.publication().values()
    assert (event.start, type(event.payload)) == (2, Failed)
    assert event.payload.usage == Usage(1, 0, 1)
