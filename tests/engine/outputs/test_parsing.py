"""The parsers that a model's settings give, their effect on a request, and the reasoning markers for the core."""

import dataclasses

import pytest

from engine.api import (
    Constraint,
    ConstraintKind,
    GenerationRequest,
    ModelLoadError,
    RequestError,
    Tool,
    ToolChoice,
    ToolMode,
)
from engine.messages import Thinking
from engine.outputs.parsing import OutputParsing
from engine.outputs.pieces import CallStart, ContentText
from tests.engine.outputs.marked_tokenizer import marked_tokenizer, template_of
from tests.engine.tiny_tokenizer import THINK, tiny_tokenizer

TOKENIZER = marked_tokenizer(markers=["</think>"])
END_THINK = TOKENIZER.backend.token_to_id("</think>")
TOOLS = (Tool("f"), Tool("g"))
HEADER = "<|im_start|>assistant\n"
A_CONSTRAINT = Constraint(ConstraintKind.JSON_OBJECT)


def request(**changes):
    return dataclasses.replace(GenerationRequest("run", "tiny", (), 0.0), **changes)


def parsing(tools="none", reasoning="none", tokenizer=TOKENIZER):
    return OutputParsing(tokenizer, tools, reasoning)


def thinking(name, prompt=HEADER, tokenizer=TOKENIZER, **changes):
    return parsing(reasoning=name, tokenizer=tokenizer).plan(request(**changes), tokenizer.encode(prompt)).thinking


def test_parsers_that_do_not_fit_the_model_stop_the_start():
    for tools, reasoning in [("clever", "none"), ("none", "clever"), ("kimi_k2", "none"), ("none", "seed_oss")]:
        with pytest.raises(ModelLoadError):
            parsing(tools, reasoning)


def test_auto_chooses_the_parser_of_the_template_and_falls_back_to_hermes():
    shown = marked_tokenizer(control=["[TOOL_CALLS]"], **template_of("[TOOL_CALLS]"))
    assert (
        parsing("auto", tokenizer=shown)
        .plan(request(tools=TOOLS, tool_choice=ToolChoice(ToolMode.AUTO)), [])
        .make_choice(0)
        .call_ids
    )
    lacks = tiny_tokenizer(**template_of("[TOOL_CALLS]"))
    assert parsing("auto", tokenizer=lacks).tool_format == parsing("hermes").tool_format
    assert parsing("auto", "auto", tokenizer=lacks).reasoning_format is None


def test_auto_mode_without_a_parser_is_refused():
    with pytest.raises(RequestError) as refused:
        parsing().check(request(tools=TOOLS, tool_choice=ToolChoice(ToolMode.AUTO)))
    assert refused.value.param == "tool_choice"
    parsing().check(request(tools=TOOLS, tool_choice=ToolChoice(ToolMode.REQUIRED)))
    parsing().check(request(tool_choice=ToolChoice(ToolMode.AUTO)))


@pytest.mark.parametrize("budget", [0, 5, -1])
def test_a_budget_needs_a_format_with_an_end_marker(budget):
    with pytest.raises(RequestError) as refused:
        parsing().check(request(thinking_token_budget=budget))
    assert refused.value.param == "thinking_token_budget"
    parsing(reasoning="qwen3").check(request(thinking_token_budget=budget))


@pytest.mark.parametrize(
    ("mode", "tools", "has_parser"),
    [
        (ToolMode.NONE, TOOLS, False),
        (ToolMode.AUTO, (), False),
        (ToolMode.AUTO, TOOLS, True),
        (ToolMode.REQUIRED, TOOLS, True),
    ],
)
def test_calls_are_parsed_only_if_the_request_allows_them(mode, tools, has_parser):
    parsers = parsing("hermes").plan(request(tools=tools, tool_choice=ToolChoice(mode)), []).make_choice(0)
    assert (parsers.calls is not None) == has_parser


@pytest.mark.parametrize(("constraint", "kind"), [(None, CallStart), (A_CONSTRAINT, ContentText)])
def test_an_answer_of_constrained_json_is_no_call_outside_the_tags(constraint, kind):
    """Its schema may require a name and arguments; forced calls have them in their tags."""
    free = request(tools=TOOLS, tool_choice=ToolChoice(ToolMode.AUTO), constraint=constraint)
    object_ = '{"name": "f", "arguments": {}}'
    for text, expected in [(object_, kind), (f"<tool_call>{object_}</tool_call>", CallStart)]:
        calls = parsing("hermes").plan(free, []).make_choice(0).calls
        assert isinstance([*calls.feed(text), *calls.flush()][0], expected)


def test_call_ids_depend_on_run_choice_and_number():
    plan = parsing("hermes").plan(request(), [])
    ids = {plan.make_choice(choice).make_call_id(index, "f") for choice in (0, 1) for index in (0, 1)}
    assert len(ids) == 4
    assert plan.make_choice(1).make_call_id(1, "f") in ids


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("qwen3", HEADER, Thinking([THINK], [END_THINK], False, 7)),
        ("qwen3", f"{HEADER}<think>\n", Thinking([THINK], [END_THINK], True, 7)),
        ("deepseek_r1", HEADER, Thinking([THINK], [END_THINK], True, 7)),
        ("deepseek_r1", f"{HEADER}</think>", None),
        ("none", HEADER, None),
    ],
)
def test_core_gets_the_state_and_markers_of_reasoning(name, prompt, expected):
    assert thinking(name, prompt, thinking_token_budget=7) == expected


@pytest.mark.parametrize(
    ("changes", "has_markers"),
    [
        ({}, False),
        ({"thinking_token_budget": -1}, False),
        ({"thinking_token_budget": 0}, True),
        ({"constraint": A_CONSTRAINT}, True),
        ({"tools": TOOLS, "tool_choice": ToolChoice(ToolMode.AUTO)}, False),
        ({"tools": (Tool("f", is_strict=True),), "tool_choice": ToolChoice(ToolMode.AUTO)}, True),
        ({"tools": TOOLS, "tool_choice": ToolChoice(ToolMode.REQUIRED)}, True),
        ({"tools": TOOLS, "tool_choice": ToolChoice(ToolMode.NAMED, ("f",))}, True),
    ],
)
def test_core_gets_reasoning_markers_only_for_a_budget_or_a_grammar(changes, has_markers):
    assert (thinking("qwen3", **changes) is not None) == has_markers


def test_unlimited_budget_forces_no_end():
    assert thinking("qwen3", thinking_token_budget=-1, constraint=A_CONSTRAINT).budget is None


def test_markers_of_several_tokens_are_spelled_as_the_model_would():
    parameters = thinking("olmo3", tokenizer=tiny_tokenizer(), thinking_token_budget=1)
    assert (parameters.start_ids, bytes(parameters.end_ids[:2])) == ([THINK], b"</")
    parameters = thinking("hunyuan_a13b", thinking_token_budget=1)
    assert (parameters.end_ids[0], parameters.is_open) == (END_THINK, False)
