"""Checks of any body end in an engine request or in one 400 that names a field."""

import json

from hypothesis import given
from hypothesis import strategies as st

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.cross_field import FOREIGN_CONSTRAINTS
from chat.api.request.parse import request_parse
from chat.api.request.schema import ChatCompletionRequest
from chat.errors import ApiError
from engine.api import GenerationRequest
from engine.api.wire import request_from_plain, request_to_plain
from tests.chat.api.request.bad_requests import BAD
from tests.chat.api.request.bad_values import MESSAGES
from tests.chat.api.request.building import generation_built
from tests.examples import examples

CALLER = Caller(1, "testing0001", 1, 1, "1", frozenset(Right.values), min_priority=-10)
FIELDS = list(ChatCompletionRequest().fields)
KEYS = sorted(
    {key for bad in BAD for value in bad.fields.values() if isinstance(value, dict) for key in value if len(key) < 40}
)
EDGES = (
    0,
    1,
    -1,
    2,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    0.5,
    1e308,
    "",
    "5",
    "none",
    "auto",
    "function",
    "f",
    "\0",
    "é",
    " ",
)
LEAVES = st.none() | st.booleans() | st.sampled_from(EDGES) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=3)
    ),
)
TYPED = st.sampled_from([(name, value) for bad in BAD for name, value in bad.fields.items() if len(str(value)) < 200])


def outcome(body: dict) -> GenerationRequest | ApiError:
    try:
        return generation_built(request_parse(body), CALLER)
    except ApiError as error:
        return error


def ends_well(body: dict) -> None:
    result = outcome(body)
    if isinstance(result, GenerationRequest):
        assert request_from_plain(json.loads(json.dumps(request_to_plain(result)))) == result
        return
    assert result.status == 400
    assert result.param is not None
    assert result.param.split(".")[0] in (*FIELDS, *FOREIGN_CONSTRAINTS)
    assert len(result.param) <= 200


@examples(150)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5))
def test_any_json_in_fields_is_read_or_refused(fields):
    ends_well({"messages": MESSAGES} | fields)


@examples(150)
@given(st.lists(TYPED, max_size=4), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=1))
def test_nearly_valid_fields_are_read_or_refused(pairs, fields):
    ends_well({"messages": MESSAGES} | dict(pairs) | fields)
