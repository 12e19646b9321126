"""Channels of harmony in any split: analysis is reasoning, and messages to functions go to the call parser."""

from hypothesis import given

from engine.outputs.pieces import ContentText, ReasoningText
from engine.outputs.reasoning.harmony import HarmonyReasoningParser
from tests.engine.outputs.splits import cut, cuts, every_cut_in_two, say, texts_of

ANALYSIS = "<|channel|>analysis<|message|>why"
FINAL = "<|start|>assistant<|channel|>final<|message|>so"
CALL = "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"


def parsed(text, **options):
    results = {
        tuple(say(HarmonyReasoningParser(**options), pieces)) for pieces in [*every_cut_in_two(text), list(text)]
    }
    assert len(results) == 1
    return list(results.pop())


@given(texts_of(ANALYSIS, FINAL, CALL, "<|end|>", "<|channel|>", "<|start|>", "<|message|>"), cuts)
def test_every_split_gives_the_same_pieces(text, points):
    assert say(HarmonyReasoningParser(True), cut(text, points)) == say(HarmonyReasoningParser(True), [text])


def test_analysis_is_reasoning_and_final_is_content():
    assert parsed(f"{ANALYSIS}<|end|>{FINAL}<|return|>") == [ReasoningText("why"), ContentText("so")]
    assert parsed(ANALYSIS) == [ReasoningText("why")]
    assert parsed("<|channel|>final<|message|>so") == [ContentText("so")]


def test_preamble_is_content_and_reasoning_may_continue_after_it():
    text = f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{ANALYSIS}<|end|>{FINAL}"
    assert parsed(text) == [ContentText("I look."), ReasoningText("why"), ContentText("so")]


def test_forced_end_marker_ends_the_analysis():
    assert parsed(f"{ANALYSIS}<|channel|>final<|message|>so") == [ReasoningText("why"), ContentText("so")]


def test_call_is_passed_on_with_its_recipient_in_either_position():
    call = ContentText("<|channel|>commentary to=functions.f<|message|>{}<|call|>")
    assert parsed(f"{ANALYSIS}<|end|>{CALL}", keeps_calls=True) == [ReasoningText("why"), call]
    late = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    assert parsed(f"{ANALYSIS}<|end|><|start|>assistant{late}", keeps_calls=True) == [ReasoningText("why"), call]


def test_without_a_parser_of_calls_their_text_is_content():
    assert parsed(CALL) == [ContentText("{}")]


def test_message_begun_by_the_prompt_continues():
    assert parsed(" more", head="assistant<|channel|>final<|message|>part") == [ContentText(" more")]
    assert parsed("why", head="assistant<|channel|>analysis<|message|>") == [ReasoningText("why")]
    assert parsed(ANALYSIS, head="assistant") == [ReasoningText("why")]


def test_text_without_header_is_content_and_half_a_header_is_dropped():
    assert parsed("plain") == [ContentText("plain")]
    assert parsed("<|channel|>analys") == []
    assert "".join(piece.text for piece in parsed("x" * 600)) == "x" * 600
