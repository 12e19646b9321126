"""An accepted pattern matches white space only, also in Python."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import whitespace_read

BLANKS = (" ", "\t", "\\n", "\\r", "\\t", "\\x20", "[ \\n]")
OTHERS = ("(", "(?:", ")", "|", "*", "+", "?", "{2}", "{1,3}", "{,2}", "a", ".", "\\s", "^", "[^ ]")
PIECES = st.sampled_from(BLANKS + OTHERS)
TEXTS = st.text(st.sampled_from(" \t\n\ra.{2},*1"), max_size=6)


@pytest.mark.parametrize(
    "pattern", ["", " ", r"[ \t\n\r]*", "[ \n]{0,3}", r"( |\n)?", r"[\x20\x0a]+", "(?: ){2,}", "\t"]
)
def test_white_space_patterns_pass(pattern):
    whitespace_read(pattern)


@given(st.lists(PIECES, max_size=8).map("".join), TEXTS)
def test_accepted_patterns_match_white_space_only(pattern, text):
    try:
        whitespace_read(pattern)
    except ValidationError:
        return
    if re.compile(pattern).fullmatch(text):
        assert set(text) <= set(" \t\n\r")
