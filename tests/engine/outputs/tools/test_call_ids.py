"""Ids have the form that clients and templates expect, and are the same after a takeover."""

import re

from engine.outputs.tools.call_ids import CallIdStyle, call_id


def test_ids_have_their_style():
    assert re.fullmatch("chatcmpl-tool-[0-9a-f]{32}", call_id(CallIdStyle.DEFAULT, "run", 0, 0, "f"))
    assert re.fullmatch("[0-9A-Za-z]{9}", call_id(CallIdStyle.MISTRAL, "run", 0, 0, "f"))
    assert call_id(CallIdStyle.KIMI_K2, "run", 0, 2, "f") == "functions.f:2"


def test_call_ids_are_reproducible_and_unique():
    for style in (CallIdStyle.DEFAULT, CallIdStyle.MISTRAL):
        ids = [call_id(style, run, choice, index, "f") for run in ("a", "b") for choice in (0, 1) for index in (0, 1)]
        assert len(set(ids)) == len(ids)
        assert ids[0] == call_id(style, "a", 0, 0, "f")
