"""Requests and events survive JSON with any values, and versions with more or fewer fields."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Embedded,
    EmbedOptions,
    Event,
    Failed,
    GenerationRequest,
    LogprobOptions,
    PromptOptions,
    RawPrompt,
    Rejected,
    SamplingParams,
    StopRules,
    Task,
    Timings,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from engine.api.wire import event_from_plain, event_to_plain, request_from_plain, request_to_plain

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(max_size=20)
number = st.integers(min_value=0, max_value=2**40)
json_values = st.recursive(
    st.none() | st.booleans() | number | finite | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=8,
)

requests = st.builds(
    GenerationRequest,
    run_id=text,
    model=text,
    messages=st.lists(st.dictionaries(text, json_values, max_size=3), max_size=3).map(tuple),
    arrived_at=finite,
    sampling=st.builds(SamplingParams, temperature=finite, top_k=number, seed=st.none() | number),
    stop=st.builds(
        StopRules,
        max_tokens=st.none() | number,
        stop=st.lists(text, max_size=3).map(tuple),
        stop_token_ids=st.lists(number, max_size=3).map(tuple),
        ignore_eos=st.booleans(),
    ),
    logprobs=st.builds(LogprobOptions, enabled=st.booleans(), top=number),
    prompt=st.builds(PromptOptions, add_generation_prompt=st.booleans()),
    num_choices=number,
    deadline_at=st.none() | finite,
    task=st.sampled_from(Task),
    raw=st.none()
    | st.builds(RawPrompt, text, st.none() | st.lists(number, max_size=3).map(tuple), st.none() | text, text),
    embed=st.builds(EmbedOptions, text, st.none() | number),
    adapter=st.none() | text,
)
timings = st.builds(Timings, arrived_at=finite, started_at=st.none() | finite, ended_at=st.none() | finite)
usages = st.builds(Usage, prompt_tokens=number, cached_tokens=number, completion_tokens=number)
top_logprobs = st.builds(TopLogprob, token_id=number, logprob=finite, token=text, token_bytes=st.binary(max_size=4))
logprobs = st.builds(
    TokenLogprob,
    token_id=number,
    logprob=finite,
    token=text,
    token_bytes=st.binary(max_size=4),
    top=st.lists(top_logprobs, max_size=2).map(tuple),
)
payloads = st.one_of(
    st.builds(
        Admitted,
        num_prompt_tokens=number,
        max_tokens=number,
        seed=number,
        prompt_tokens=st.none() | st.lists(text, max_size=3).map(tuple),
    ),
    st.builds(Embedded, st.lists(finite, max_size=4).map(tuple)),
    st.builds(Rejected, message=text, param=st.none() | text),
    st.builds(
        Delta,
        choice=number,
        token_ids=st.lists(number, max_size=4).map(tuple),
        text=text,
        logprobs=st.none() | st.lists(logprobs, max_size=2).map(tuple),
    ),
    st.builds(ChoiceFinished, choice=number, stop_reason=st.none() | text | number, text=text),
    st.builds(Completed, usage=usages, timings=timings),
    st.builds(Failed, message=text, usage=usages, timings=st.none() | timings),
)
events = st.builds(Event, start=number, count=number, payload=payloads)


def through_json(plain):
    return json.loads(json.dumps(plain))


@given(requests)
def test_a_request_survives_the_wire_format(request):
    assert request_from_plain(through_json(request_to_plain(request))) == request


@given(events)
def test_an_event_survives_the_wire_format(event):
    assert event_from_plain(through_json(event_to_plain(event))) == event


def test_default_values_are_left_out():
    assert request_to_plain(GenerationRequest("run", "model", (), 1.0)) == {
        "run_id": "run",
        "model": "model",
        "messages": [],
        "arrived_at": 1.0,
    }
    assert event_to_plain(Event(3, 1, Delta(0, (5,), "a"))) == [
        3,
        1,
        "delta",
        {"choice": 0, "token_ids": [5], "text": "a"},
    ]


def test_fields_of_a_newer_version_are_ignored():
    request = GenerationRequest("run", "model", ({"role": "user"},), 1.0, stop=StopRules(stop=("x",)))
    plain = request_to_plain(request)
    plain["invented"] = {"deep": 1}
    plain["stop"]["invented"] = 1
    assert request_from_plain(plain) == request
    event = Event(0, 1, Admitted(1, 2, 3))
    assert event_from_plain([*event_to_plain(event), "more"]) == event


@pytest.mark.parametrize(
    "plain",
    [
        [0, 1, "delta", {"choice": 0}],
        [0, 1, "invented", {}],
        [0, 1, "delta", None],
        [0, 1, "choice_finished", {"choice": 0, "reason": "?"}],
        [0, 1],
    ],
)
def test_an_event_that_lacks_its_parts_raises_value_error(plain):
    with pytest.raises(ValueError):
        event_from_plain(plain)
