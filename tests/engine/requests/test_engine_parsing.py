"""Reasoning and tool calls through submit(): events, ends, core messages and takeovers."""

import pytest

from engine.api import (
    ChoiceFinished,
    Delta,
    ErrorCode,
    FinishReason,
    ModelLoadError,
    Rejected,
    RepetitionRule,
    StopRules,
    Tool,
    ToolChoice,
    ToolMode,
)
from engine.engine import Resume
from engine.messages import AbortSequences
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import Stage, check_positions, output, payloads
from tests.engine.tiny_tokenizer import IM_END, THINK, tiny_tokenizer

TOOLS = (Tool("f"), Tool("g"))
AUTO = {"tools": TOOLS, "tool_choice": ToolChoice(ToolMode.AUTO)}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
ids_of = tiny_tokenizer().encode


@pytest.fixture
def thinker(make_stage, monkeypatch):
    """Return an engine whose model has reasoning tags and hermes calls; tool schemas are not enforced."""
    monkeypatch.setattr("engine.structured.compiler.ConstraintCompiler.check_tool_schemas", lambda *_: None)
    return lambda *cores: make_stage(*cores, reasoning_parser="olmo3", tool_parser="hermes")


def reported(events):
    """Return what a client has of choice 0: reasoning, text, calls, the end."""
    reasoning = text = ""
    calls, end = [], None
    for payload in payloads(events):
        if isinstance(payload, Delta | ChoiceFinished) and payload.choice == 0:
            reasoning, text = reasoning + payload.reasoning, text + payload.text
            for delta in payload.tool_calls:
                if delta.name:
                    calls.append([delta.id, delta.name, ""])
                else:
                    calls[delta.index][2] += delta.arguments
            end = payload if isinstance(payload, ChoiceFinished) else end
    return reasoning, text, calls, end and (end.reason, end.stop_reason)


def play(core, sequence, ids, finish=None):
    """Send one step per token, the last with the core's finish."""
    for index, token in enumerate(ids):
        core.say(output(sequence, [token], finish if index + 1 == len(ids) else None))


def test_an_answer_with_reasoning_and_calls(thinker):
    stage = thinker()
    stage.submit(**AUTO)
    (sequence,) = stage.core.hear_sequences()
    ids = [*ids_of(f"why</think>I look.{CALL}{CALL}"), IM_END]
    play(stage.core, sequence, ids, "stop")
    events = stage.events_to_end()
    reasoning, text, calls, end = reported(events)
    assert (reasoning, text, end) == ("why", "I look.", (FinishReason.TOOL_CALLS, None))
    assert [call[1:] for call in calls] == [["f", '{"a": 1}']] * 2
    usage = payloads(events)[-1].usage
    assert (usage.completion_tokens, usage.reasoning_tokens) == (len(ids), len(ids_of("why</think>")))


def test_a_single_call_ends_the_choice_and_aborts_its_sequence(thinker):
    stage = thinker()
    stage.submit(tools=TOOLS, tool_choice=ToolChoice(ToolMode.AUTO, is_parallel=False), num_choices=2)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, ids_of(f"</think>{CALL} and more {CALL}")))
    assert stage.core.hear(AbortSequences).seq_ids == [first.seq_id]
    stage.core.say(output(first, ids_of(CALL)))  # the core was a step ahead
    stage.core.say(output(second, b"x", "length"))
    _, _, calls, end = reported(stage.events_to_end())
    assert (len(calls), end) == (1, (FinishReason.TOOL_CALLS, None))


def test_an_answer_that_repeats_itself_is_ended_in_the_core(thinker):
    stage = thinker()
    stage.submit(stop=StopRules(repetition=RepetitionRule(2, 1, 4)))
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"xabababababab"))
    assert stage.core.hear(AbortSequences).seq_ids == [sequence.seq_id]
    events = stage.events_to_end()
    assert reported(events)[0] == "xabababab"
    assert reported(events)[3] == (FinishReason.REPETITION, "repetition_detected")


def test_a_grammar_that_has_ended_ends_the_answer_even_without_a_token(thinker):
    """A sequence resumed at the end of its grammar has no token left."""
    stage = thinker()
    stage.submit(num_choices=2)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, ids_of("</think>so"), "complete"), output(second, ids_of("</think>so")))
    stage.core.say(output(second, [], "complete"))
    ends = [event for event in payloads(stage.events_to_end()) if isinstance(event, ChoiceFinished)]
    assert [(end.choice, end.reason, end.stop_reason) for end in ends] == [
        (0, FinishReason.STOP, None),
        (1, FinishReason.STOP, None),
    ]


def test_accepted_and_rejected_drafts_are_counted_in_usage(stage):
    stage.submit(stop=StopRules(stop=("b",)))
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"xx", num_accepted=1, num_rejected=3), output(sequence, b"abcd", num_accepted=3))
    usage = payloads(stage.events_to_end())[-1].usage
    assert (usage.completion_tokens, usage.accepted_prediction_tokens, usage.rejected_prediction_tokens) == (4, 3, 3)


def test_reasoning_markers_are_sent_to_the_core_only_for_a_budget(thinker):
    stage = thinker()
    stage.submit("plain")
    stage.submit("budget", thinking_token_budget=3)
    plain, budget = (sequence.thinking for sequence in stage.core.hear_sequences(2))
    assert plain is None
    assert (budget.start_ids, budget.end_ids, budget.is_open, budget.budget) == ([THINK], ids_of("</think>"), True, 3)


@pytest.mark.parametrize(
    ("changes", "param"),
    [({"thinking_token_budget": 3}, "thinking_token_budget"), (AUTO, "tool_choice")],
    ids=["budget", "calls"],
)
def test_requests_that_the_parsers_do_not_support_are_rejected(make_stage, changes, param):
    stage = make_stage(tool_parser="none", reasoning_parser="none")
    stage.submit(**changes)
    ((event,),) = stage.publication().values()
    assert (type(event.payload), event.payload.code, event.payload.param) == (
        Rejected,
        ErrorCode.UNSUPPORTED_PARAMETER,
        param,
    )
    assert stage.core.has_heard_all()


@pytest.mark.parametrize(
    "config", [{"reasoning_parser": "clever"}, {"reasoning_parser": "qwen3"}, {"tool_parser": "mistral"}]
)
def test_a_parser_that_does_not_fit_the_model_stops_the_start(folder, config):
    stage = Stage(folder, **config)
    with pytest.raises(ModelLoadError, match="parser"):
        stage.engine.start()
    assert stage.engine.stats().state == "failed"


ANSWER = [*ids_of(f"why</think>I look.{CALL}{CALL}"), IM_END]


@pytest.mark.parametrize("num_before", [1, 5, 12, 20, 30, 48, 60, 75, 90])
def test_an_answer_continues_in_a_new_core_without_gap_or_repeat(thinker, num_before):
    expected = thinker()
    expected.submit(**AUTO)
    play(expected.core, expected.core.hear_sequences()[0], ANSWER, "stop")
    second = ScriptedCore(READY)
    stage = thinker(ScriptedCore(READY), second)
    stage.submit(**AUTO)
    play(stage.core, stage.core.hear_sequences()[0], ANSWER[:num_before])
    stage.core.die()
    (again,) = second.hear_sequences()
    assert again.output_ids == ANSWER[:num_before]
    play(second, again, ANSWER[num_before:], "stop")
    assert reported(stage.events_to_end()) == reported(expected.events_to_end())


@pytest.mark.parametrize("num_logged", range(1, len(ANSWER) + 4, 5))
def test_a_resumed_answer_continues_at_the_end_of_the_log(thinker, num_logged):
    first = thinker()
    first.submit(**AUTO)
    play(first.core, first.core.hear_sequences()[0], ANSWER, "stop")
    events = first.events_to_end()
    second = thinker()
    resume = Resume(tuple(events[:num_logged]))
    second.submit(resume=resume, **AUTO)
    if num_logged <= len(ANSWER):
        (again,) = second.core.hear_sequences()
        play(second.core, again, ANSWER[len(again.output_ids) :], "stop")
    resumed = check_positions([*resume.events, *second.events_to_end()])
    assert reported(resumed) == reported(events)
    assert resumed[-1].payload.usage == events[-1].payload.usage


def test_a_single_call_without_a_logged_end_ends_when_resumed(thinker):
    request = {"tools": TOOLS, "tool_choice": ToolChoice(ToolMode.AUTO, is_parallel=False)}
    first = thinker()
    first.submit(**request)
    (sequence,) = first.core.hear_sequences()
    first.core.say(output(sequence, ids_of(f"</think>{CALL} and")))
    events = first.events_to_end()
    second = thinker()
    second.submit(resume=Resume(tuple(events[:2])), **request)
    resumed = second.events_to_end()
    assert [event.payload for event in resumed[:-1]] == [event.payload for event in events[2:-1]]
    assert second.core.has_heard_all()
