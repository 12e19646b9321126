"""Logits processors of a request are looked up by name, and their arguments checked against the declaration."""

import pytest

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import ProcessorCall, SamplingParams
from engine.inputs.limits import ContextLimits, check_processors
from engine.messages import ProcessorParameter, ProcessorSpec

SPEC = ProcessorSpec(
    "guard",
    [
        ProcessorParameter("size", "int", 1, 9, is_required=True),
        ProcessorParameter("rate", "float", 0.0, 1.0),
        ProcessorParameter("strict", "bool"),
        ProcessorParameter("label", "str"),
        ProcessorParameter("sizes", "int_list", -5, 5),
        ProcessorParameter("ids", "token_ids"),
        ProcessorParameter("paths", "token_id_lists"),
    ],
)
LIMITS = ContextLimits(4096, 300, (SPEC, ProcessorSpec("plain")))


def check(*calls, **free):
    check_processors(SamplingParams(processors=calls, processor_args=free), LIMITS)


def refusal(*calls, **free):
    with pytest.raises(RequestError) as caught:
        check(*calls, **free)
    assert caught.value.code == ErrorCode.INVALID_VALUE
    return caught.value


def guard(*args, **kwargs):
    return ProcessorCall("guard", args, kwargs)


@pytest.mark.parametrize(
    "call",
    [
        guard(1),
        guard(9, 0.5, True, "x", [-5, 5], [0, 299], [[1, 2], [3]]),
        guard(size=2.0, rate=1, strict=0, sizes=[], ids=[4.0]),
        guard(3, rate=None),
    ],
)
def test_arguments_as_declared_pass(call):
    check(call, ProcessorCall("plain"))


@pytest.mark.parametrize("name", ["os:system", "vllm.sample.Guard", "", "Guard", "x" * 5000])
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(name):
    error = refusal(guard(1), ProcessorCall(name))
    assert error.param == "logits_processors"
    assert "guard, plain" in error.message
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    ("call", "param", "says"),
    [
        (guard(), "logits_processors.1.kwargs.size", "from 1 to 9"),
        (guard(0), "logits_processors.1.args.0", "from 1 to 9"),
        (guard(size=10), "logits_processors.1.kwargs.size", "from 1 to 9"),
        (guard("3"), "logits_processors.1.args.0", "an integer"),
        (guard(True), "logits_processors.1.args.0", "an integer"),
        (guard(2.5), "logits_processors.1.args.0", "an integer"),
        (guard(1, rate=1.5), "logits_processors.1.kwargs.rate", "from 0 to 1"),
        (guard(1, strict="yes"), "logits_processors.1.kwargs.strict", "true or false"),
        (guard(1, label=5), "logits_processors.1.kwargs.label", "a string"),
        (guard(1, sizes=[6]), "logits_processors.1.kwargs.sizes", "from -5 to 5"),
        (guard(1, ids=[]), "logits_processors.1.kwargs.ids", "0 to 299"),
        (guard(1, ids=[300]), "logits_processors.1.kwargs.ids", "0 to 299"),
        (guard(1, ids=[-1]), "logits_processors.1.kwargs.ids", "0 to 299"),
        (guard(1, paths=[[1], []]), "logits_processors.1.kwargs.paths", "non-empty"),
        (guard(1, paths=[1]), "logits_processors.1.kwargs.paths", "arrays"),
        (guard(1, paths=[[1] * 40_000] * 2), "logits_processors.1.kwargs.paths", "65536"),
        (guard(1, size=2), "logits_processors.1.kwargs.size", "twice"),
        (guard(1, tokens=2), "logits_processors.1.kwargs.tokens", "size, rate, strict"),
        (guard(*range(1, 9)), "logits_processors.1.args", "at most 7"),
        (ProcessorCall("plain", (1,)), "logits_processors.1.args", "no arguments"),
    ],
)
def test_an_argument_against_its_declaration_is_refused_at_its_place(call, param, says):
    error = refusal(ProcessorCall("plain"), call)
    assert error.param == param
    assert says in error.message
    assert len(error.message) < 1000


def test_a_free_value_replaces_a_missing_argument_and_is_checked():
    check(guard(), size=3, unread=[1, "x"])
    check(guard(4), size=999)
    error = refusal(guard(), size=999)
    assert (error.param, "from 1 to 9" in error.message) == ("vllm_xargs.size", True)


def test_free_values_without_a_processor_are_not_checked():
    check(size=999)
