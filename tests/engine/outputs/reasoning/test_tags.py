"""Every format separates reasoning from content, in any split of any output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.pieces import ContentText, ReasoningText
from engine.outputs.reasoning.formats import FORMATS, HARMONY
from engine.outputs.reasoning.parser import ReasoningState
from engine.outputs.reasoning.registry import make_reasoning_parser
from tests.engine.outputs.splits import cut, cuts, every_cut_in_two, joined, say, texts_of

TAGGED = [form for form in FORMATS.values() if form.name != HARMONY]
OPTIONAL = [form.name for form in TAGGED if not form.needs_start and not form.is_shown and not form.wrapper]
NEEDED = [form.name for form in TAGGED if form.needs_start and not form.wrapper]
TAGS = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<response>",
    "</response>",
    "[THINK]",
    "[/THINK]",
    "<seed:think>",
    "</seed:think>",
]
WORDS = [*TAGS, "Here is my thought process:", "Here's my response:"]


def parser(name, state=ReasoningState.UNKNOWN):
    return make_reasoning_parser(FORMATS[name], state)


def parsed(name, text, state=ReasoningState.UNKNOWN):
    """Return (reasoning, content), the same in every cut in two."""
    results = {tuple(say(parser(name, state), pieces)) for pieces in [*every_cut_in_two(text), list(text)]}
    assert len(results) == 1
    (said,) = results
    return tuple(
        "".join(piece.text for piece in said if isinstance(piece, kind)) for kind in (ReasoningText, ContentText)
    )


def tags(name):
    form = FORMATS[name]
    return form.starts[0], form.ends[0]


@given(st.sampled_from(TAGGED), st.sampled_from(ReasoningState), texts_of(*WORDS), cuts)
def test_every_split_gives_the_same_pieces(form, state, text, points):
    assert say(parser(form.name, state), cut(text, points)) == say(parser(form.name, state), [text])


@given(st.sampled_from(TAGGED), st.sampled_from(ReasoningState), texts_of(*WORDS))
def test_nothing_but_tags_and_white_space_beside_them_is_lost(form, state, text):
    said = "".join(piece.text for piece in say(parser(form.name, state), [text]))
    left = "".join(text.split())
    for tag in (*form.starts, *form.ends, *(form.wrapper or ())):
        left, said = left.replace("".join(tag.split()), ""), said.replace(tag, "")
    assert "".join(said.split()) == left


@pytest.mark.parametrize("name", OPTIONAL)
def test_reasoning_lasts_until_the_end_tag_with_or_without_a_start_tag(name):
    start, end = tags(name)
    assert parsed(name, f"{start}why\n{end}\n\nso") == ("why\n", "\n\nso")
    assert parsed(name, f"why{end}so") == ("why", "so")
    assert parsed(name, f"\n {start}why{end}so") == ("why", "so")
    assert parsed(name, "never leaves") == ("never leaves", "")
    assert parsed(name, f"why{end}so {start} and {end}") == ("why", f"so {start} and {end}")


@pytest.mark.parametrize("name", NEEDED)
def test_answer_without_a_required_start_tag_is_content(name):
    start, end = tags(name)
    assert parsed(name, f"{start}why{end}so") == ("why", "so")
    assert parsed(name, f"{start}never leaves") == ("never leaves", "")
    assert parsed(name, f"so{end}\n{start}") == ("", f"so{end}\n{start}")
    assert parsed(name, f"why{end}so", ReasoningState.OPEN) == ("why", "so")


@pytest.mark.parametrize("name", [form.name for form in TAGGED])
def test_answer_is_content_if_the_prompt_closed_the_reasoning(name):
    start, _ = tags(name)
    assert parsed(name, f"so {start} and on", ReasoningState.CLOSED) == ("", f"so {start} and on")


def test_granite_knows_both_spellings_of_its_headings():
    assert parsed("granite", "Here's my thought process: a Here is my response: b") == (" a ", " b")


def test_hunyuan_removes_its_line_breaks_and_answer_tags():
    assert parsed("hunyuan_a13b", "<think>\nwhy\n</think>\n<answer>\nso\n</answer>") == ("why", "so")
    assert parsed("hunyuan_a13b", "<answer>\nso</answer>\n") == ("", "so")


def test_ernie_removes_the_response_tags():
    assert parsed("ernie45", "why\n</think>\n\n<response>\nso\n</response>\n") == ("why", "so")
    assert parsed("ernie45", "why</think>\nso </response>") == ("why", "so </response>")


def test_minimax_can_leave_its_reasoning_in_the_content():
    """The parser reports it as reasoning with `is_shown`, so that calls are parsed only after it."""
    assert parsed("minimax_m2_append_think", "why</think>so") == ("<think>why</think>", "so")
    assert parsed("minimax_m2_append_think", "<think>why") == ("<think>why", "")
    assert parser("minimax_m2_append_think").is_shown


def test_only_text_that_may_become_a_tag_is_held_back():
    one = parser("deepseek_r1")
    assert joined(one.feed("a</thi")) == [ReasoningText("a")]
    assert joined(one.feed("s is")) == [ReasoningText("</this is")]
    assert one.is_open
    assert joined(one.feed("</think>b<")) == [ContentText("b<")]
    assert one.is_over


@pytest.mark.parametrize("name", ["deepseek_r1", "granite", "hunyuan_a13b", HARMONY])
def test_a_hostile_text_costs_linear_time(name):
    """A search that begins anew at each piece would look at billions of characters here."""
    for text in ("</thin" * 5000, "\n" * 30_000, " <" * 15_000, "<|start|>" * 3000):
        one = parser(name)
        pieces = [piece for character in text for piece in one.feed(character)] + one.flush()
        whole = say(parser(name), [text])
        assert joined(pieces) == whole
