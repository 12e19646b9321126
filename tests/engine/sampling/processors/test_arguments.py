"""Arguments that are no usable numbers are refused by name. tests/engine/inputs tests those of shipped processors."""

import math

import pytest

from engine.api.errors import RequestError
from engine.api.request import ProcessorCall
from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.arguments import bind_arguments

SPEC = ProcessorSpec("scaled", [ProcessorParameter("factor", "float", 0.0)])


@pytest.mark.parametrize("value", [10**400, math.inf, math.nan, True, -1])
def test_value_that_is_no_finite_number_in_range_is_refused(value):
    with pytest.raises(RequestError) as caught:
        bind_arguments(SPEC, ProcessorCall("scaled", kwargs={"factor": value}), {}, 32)
    assert caught.value.param == "logits_processors.kwargs.factor"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "true"), ([None, {"a": False}], '[null, {"a": false}]'), ("2", "'2'"), ([1] * 200, "[1, 1")],
)
def test_a_refused_value_is_quoted_as_sent(value, shown):
    """The error used Python's `True` for JSON's `true`."""
    with pytest.raises(RequestError) as caught:
        bind_arguments(SPEC, ProcessorCall("scaled", kwargs={"factor": value}), {}, 32)
    shown_value = caught.value.message.partition(", got ")[2]
    assert shown_value.startswith(shown)
    assert len(shown_value) <= 200


def test_an_integer_is_a_number():
    assert bind_arguments(SPEC, ProcessorCall("scaled", kwargs={"factor": 2}), {}, 32) == {"factor": 2.0}
