"""Answers that a grammar forces to be calls become calls, complete or truncated."""

from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.pieces import CallStart
from engine.outputs.tools.forced import NamedCallReader, RequiredCallsReader
from tests.engine.outputs.tools.joined import Call, ParsedText, parse

TWO = '[{"name":"get_weather","parameters":{"city":"Zürich"}},{"name":"get_time","parameters":{}}]'


def required(*pieces):
    return parse(RequiredCallsReader(frozenset({"get_weather", "get_time"})), pieces)


def named(*pieces):
    return parse(NamedCallReader("get_time"), pieces)


def test_each_item_of_a_required_array_is_a_call():
    assert required(TWO) == ParsedText(calls=[Call("get_weather", '{"city":"Zürich"}'), Call("get_time", "{}")])
    assert required(*TWO) == required(TWO)


@given(st.integers(0, len(TWO)), st.integers(0, len(TWO)))
def test_a_required_array_that_is_cut_keeps_its_calls(end, border):
    whole, cut = required(TWO), required(TWO[: min(end, border)], TWO[border:end])
    assert cut == required(TWO[:end])
    assert cut.content == ""  # "[{" was, where the name of the first call was cut
    for call, complete in zip(cut.calls, whole.calls, strict=False):
        assert call.name == complete.name
        assert complete.arguments.startswith(call.arguments)
        assert not call.is_complete or call.arguments == complete.arguments


def test_the_text_of_a_named_choice_is_its_arguments():
    assert named('{"zone": "UTC"}') == ParsedText(calls=[Call("get_time", '{"zone": "UTC"}')])
    assert named('{"zone": "U', 'TC"}') == named('{"zone": "UTC"}')


def test_a_named_call_starts_with_the_first_character():
    assert NamedCallReader("get_time").feed("{")[0] == CallStart("get_time")


def test_a_named_call_that_is_cut_stays_open():
    assert named('{"zone": "U') == ParsedText(calls=[Call("get_time", '{"zone": "U', is_complete=False)])


def test_empty_named_answer_has_no_call():
    assert named() == required() == ParsedText()
