"""Whole answers through the pipeline, in any split and after a takeover."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import (
    ChoiceFinished,
    Delta,
    FinishReason,
    GenerationRequest,
    LogprobOptions,
    RepetitionRule,
    StopRules,
    Tool,
    ToolCallDelta,
    ToolChoice,
    ToolMode,
)
from engine.messages import SampledLogprobs
from engine.outputs.parsing import OutputParsing
from engine.outputs.pipeline import ChoicePipeline
from tests.engine.outputs.marked_tokenizer import marked_tokenizer
from tests.engine.tiny_tokenizer import IM_END

TOKENIZER = marked_tokenizer(control=["<|call|>", "[THINK]", "[/THINK]", "[TOOL_CALLS]"], markers=["</think>"])
CALL_ID, THINK_ID, END_THINK_ID = (TOKENIZER.backend.token_to_id(text) for text in ("<|call|>", "[THINK]", "[/THINK]"))
TOOLS = (Tool("f", {"type": "object"}), Tool("g"))
AUTO = ToolChoice(ToolMode.AUTO)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "\u00e9"}}\n</tool_call>'


def make(
    tools="hermes", reasoning="deepseek_r1", choice=AUTO, prompt="<|im_start|>assistant\n", logprobs=None, **rules
):
    parsing = OutputParsing(TOKENIZER, tools, reasoning)
    request = GenerationRequest("run", "tiny", (), 0.0, stop=StopRules(**rules), tools=TOOLS, tool_choice=choice)
    parsers = parsing.plan(request, TOKENIZER.encode(prompt)).make_choice(0)
    return ChoicePipeline(0, TOKENIZER, request.stop, logprobs or LogprobOptions(), parsers)


@dataclasses.dataclass
class Answer:
    """The state that a client has at the end."""

    reasoning: str = ""
    text: str = ""
    calls: list = dataclasses.field(default_factory=list)
    token_ids: list = dataclasses.field(default_factory=list)
    reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def add(self, event):
        self.reasoning += event.reasoning
        self.text += event.text
        for delta in event.tool_calls:
            if delta.name:
                assert (delta.index, delta.arguments) == (len(self.calls), "")
                self.calls.append([delta.id, delta.name, ""])
            else:
                self.calls[delta.index][2] += delta.arguments
        if isinstance(event, Delta):
            self.token_ids += event.token_ids
        else:
            assert self.reason is None
            self.reason, self.stop_reason = event.reason, event.stop_reason


def answer(stage, ids, sizes=(), finish=None, said=None):
    """Feed ids in groups of these sizes, the rest one by one, with the core's finish at the last."""
    said, rest, sizes = said or Answer(), list(ids), list(sizes)
    while rest and not stage.finished:
        size = sizes.pop(0) if sizes else 1
        group, rest = rest[:size], rest[size:]
        for event in stage.feed(group, finish=None if rest else finish):
            said.add(event)
    return said


def ids_of(text):
    return TOKENIZER.encode(text)


def of(text, finish=None, **options):
    return answer(make(**options), ids_of(text), finish=finish)


UNKNOWN_CALL = '<tool_call>{"name": "no"}</tool_call>'
TEXTS = ["why", "</think>", "<think>", "\n", " ", "\u00e9\u4e16", "stop", "st", "a a a "]
PARTS = [*TEXTS, CALL, CALL[:20], CALL[:40], UNKNOWN_CALL]
answers = st.lists(st.sampled_from(PARTS), max_size=7).map("".join)
options = st.fixed_dictionaries(
    {
        "reasoning": st.sampled_from(["deepseek_r1", "qwen3", "minimax_m2_append_think", "none"]),
        "choice": st.sampled_from(
            [AUTO, ToolChoice(ToolMode.AUTO, is_parallel=False), ToolChoice(ToolMode.REQUIRED), ToolChoice()]
        ),
        "stop": st.sampled_from([(), ("stop",), ("\n</tool", "\u4e16")]),
        "include_stop_str_in_output": st.booleans(),
        "repetition": st.sampled_from([None, RepetitionRule(3, 2, 3)]),
        "min_tokens": st.sampled_from([0, 8]),
    }
)
splits = st.lists(st.integers(1, 9), max_size=8)


@settings(deadline=None)
@given(answers, options, splits, st.sampled_from([None, "stop", "length", "complete"]))
def test_any_split_of_the_ids_gives_the_same_answer(text, chosen, sizes, finish):
    ids = ids_of(text) + [IM_END] * (finish == "stop")
    whole, parts = make(**chosen), make(**chosen)
    assert answer(parts, ids, sizes, finish) == answer(whole, ids, finish=finish)
    assert (parts.num_tokens, parts.num_reasoning_tokens) == (whole.num_tokens, whole.num_reasoning_tokens)


@settings(deadline=None)
@given(answers, options, splits, st.integers(0, 60))
def test_a_resumed_run_continues_without_gap_or_repeat(text, chosen, sizes, num_logged):
    """The second worker feeds the logged tokens, drops their events, and continues."""
    ids = [*ids_of(text), IM_END]
    expected = answer(make(**chosen), ids, finish="stop")
    first, said = make(**chosen), Answer()
    for size in [*sizes, *[1] * len(ids)]:
        if len(said.token_ids) + size > min(num_logged, len(ids) - 1) or first.finished:
            break
        answer(first, ids[len(said.token_ids) :][:size], [size], said=said)
    if first.finished:
        return
    second = make(**chosen)
    second.feed(said.token_ids)
    assert answer(second, ids[len(said.token_ids) :], finish="stop", said=said) == expected
    assert second.num_tokens == len(expected.token_ids)


# Contents of an answer


def test_calls_follow_the_reasoning_and_the_content():
    said = of(f"why<tool_call></think>\n\nI look.\n{CALL}\n{CALL}\n", finish="complete")
    assert (said.reasoning, said.text) == ("why<tool_call>", "\n\nI look.\n")
    assert [call[1:] for call in said.calls] == [["f", '{"a": "\u00e9"}']] * 2
    assert len({call[0] for call in said.calls}) == 2
    assert (said.reason, said.stop_reason) == (FinishReason.TOOL_CALLS, None)


def test_white_space_beside_calls_is_no_content():
    assert of(f"</think>\n\n{CALL}\n").text == ""
    assert of("</think>\n\n", finish="length").text == "\n\n"
    assert of("</think>\n\n so").text == "\n\n so"


def test_text_after_a_call_is_dropped():
    said = of(f"</think>{CALL}and so on", finish="length")
    assert (said.text, len(said.calls)) == ("", 1)


def test_unfinished_reasoning_leaves_content_and_calls_empty():
    said = of(f"why {CALL}", finish="length")
    assert (said.reasoning, said.text, said.calls, said.reason) == (f"why {CALL}", "", [], FinishReason.LENGTH)


def test_reasoning_that_is_shown_is_content_without_calls():
    said = of(f"why{CALL}</think>{CALL}", reasoning="minimax_m2_append_think")
    assert (said.reasoning, said.text, len(said.calls)) == ("", f"<think>why{CALL}</think>", 1)


def test_without_tools_nothing_is_parsed():
    said = of(f"why</think>{CALL}", choice=ToolChoice(), finish="length")
    assert (said.text, said.calls, said.reason) == (CALL, [], FinishReason.LENGTH)


def test_first_call_ends_the_answer_if_calls_are_not_parallel():
    ids = ids_of(f"</think>{CALL}")
    said = answer(make(choice=ToolChoice(ToolMode.AUTO, is_parallel=False)), ids + ids_of(CALL), [len(ids) * 2])
    assert (len(said.calls), said.reason, said.stop_reason) == (1, FinishReason.TOOL_CALLS, None)
    assert json.loads(said.calls[0][2]) == {"a": "\u00e9"}
    assert said.token_ids == ids[: len(said.token_ids)]


@pytest.mark.parametrize(
    ("finish", "choice", "reason"),
    [
        ("stop", AUTO, FinishReason.TOOL_CALLS),
        ("complete", ToolChoice(ToolMode.REQUIRED), FinishReason.TOOL_CALLS),
        ("length", AUTO, FinishReason.LENGTH),
        ("length", ToolChoice(ToolMode.REQUIRED), FinishReason.LENGTH),
        ("complete", ToolChoice(ToolMode.NAMED, ("f",)), FinishReason.STOP),
        ("length", ToolChoice(ToolMode.NAMED, ("f",)), FinishReason.LENGTH),
    ],
)
def test_finish_reason_of_answers_with_calls(finish, choice, reason):
    texts = {ToolMode.AUTO: CALL, ToolMode.REQUIRED: '[{"name":"f","parameters":{"a":1}}]', ToolMode.NAMED: '{"a":1}'}
    said = of("why</think>" + texts[choice.mode], finish=finish, choice=choice)
    assert ([call[1] for call in said.calls], said.reason) == (["f"], reason)
    assert json.loads(said.calls[0][2])


def test_a_call_cut_by_the_limit_keeps_its_arguments_so_far():
    said = of(f"</think>{CALL}{CALL[:40]}", finish="length")
    assert [call[2] for call in said.calls] == ['{"a": "\u00e9"}', "{"]
    assert said.reason is FinishReason.LENGTH


def test_stop_string_cuts_reasoning_content_and_calls():
    said = of("why stop not</think>so", stop=("stop",))
    assert (said.reasoning, said.text, said.reason, said.stop_reason) == ("why ", "", FinishReason.STOP, "stop")
    said = of(f"</think>{CALL}stop", stop=("stop",))
    assert (len(said.calls), said.reason, said.stop_reason) == (1, FinishReason.TOOL_CALLS, "stop")


def test_a_named_call_is_committed_with_its_first_character():
    choice = ToolChoice(ToolMode.NAMED, ("f",))
    assert of("why</think>", choice=choice, finish="length").calls == []
    stage = make(choice=choice, reasoning="none")
    (delta,) = stage.feed(ids_of("{"))
    assert delta.tool_calls == (ToolCallDelta(0, delta.tool_calls[0].id, "f"), ToolCallDelta(0, arguments="{"))


# Special tokens


@pytest.mark.parametrize("skip", [True, False])
def test_parsers_see_their_special_tokens_and_others_obey_the_request(skip):
    said = of(
        "[THINK]why<|call|>[/THINK]so[/THINK]<|call|>",
        reasoning="mistral",
        skip_special_tokens=skip,
        spaces_between_special_tokens=False,
    )
    left_out = "" if skip else "<|call|>"
    assert (said.reasoning, said.text) == (f"why{left_out}", "so" if skip else "so[/THINK]<|call|>")


def test_special_tokens_of_calls_are_left_out_of_the_reasoning():
    said = of("why[TOOL_CALLS]</think>so", tools="mistral")
    assert (said.reasoning, said.text) == ("why", "so")


def test_special_tokens_of_calls_reach_their_parser():
    said = of('so[TOOL_CALLS][{"name": "f", "arguments": {}}]', tools="mistral", reasoning="none", finish="complete")
    assert (said.text, said.reason) == ("so", FinishReason.TOOL_CALLS)
    assert len(said.calls[0][0]) == 9


# Counts


@pytest.mark.parametrize(
    ("text", "reasoning", "num"),
    [
        ("ab</think>so", "deepseek_r1", 3),
        ("<think>ab</think>so", "qwen3", 4),
        ("so", "qwen3", 0),
        ("ab", "deepseek_r1", 2),
    ],
)
def test_reasoning_tokens_are_counted_with_their_markers(text, reasoning, num):
    stage = make(reasoning=reasoning)
    said = answer(stage, ids_of(text))
    assert stage.num_reasoning_tokens == num
    assert stage.num_tokens == len(said.token_ids) == len(ids_of(text))


def test_every_token_has_its_logprobs_entry_and_its_id_while_text_is_held_back():
    stage = make(logprobs=LogprobOptions(enabled=True), stop=("so!",))
    ids = [*ids_of("why</think>so"), IM_END]
    deltas = [
        event
        for index, token in enumerate(ids)
        for event in stage.feed([token], [SampledLogprobs(-1.0)], "stop" if index + 1 == len(ids) else None)
    ]
    assert isinstance(deltas.pop(), ChoiceFinished)
    assert [delta.token_ids for delta in deltas] == [(token,) for token in ids]
    assert "".join(entry.token for delta in deltas for entry in delta.logprobs) == "why</think>so<|im_end|>"


# Repetition


def test_an_answer_that_repeats_itself_ends_and_keeps_its_text():
    said = answer(make(reasoning="none", repetition=RepetitionRule(4, 2, 3)), [*b"xababababab"], [20])
    assert (said.text, said.reason, said.stop_reason) == ("xababab", FinishReason.REPETITION, "repetition_detected")


def test_repetition_before_min_tokens_does_not_end_the_answer():
    said = answer(make(reasoning="none", repetition=RepetitionRule(1, 1, 3), min_tokens=5), [*b"aaaaaaaa"])
    assert said.text == "aaaaa"


def test_the_end_of_a_grammar_is_a_stop_without_a_reason():
    said = of("so", reasoning="none", finish="complete", choice=ToolChoice())
    assert (said.text, said.reason, said.stop_reason) == ("so", FinishReason.STOP, None)


def test_core_may_end_a_choice_without_a_further_token():
    stage = make(reasoning="none", stop=("so!",))
    assert stage.feed(ids_of("so"))[0].text == ""
    assert stage.feed([], finish="complete") == [ChoiceFinished(0, FinishReason.STOP, None, "so")]
