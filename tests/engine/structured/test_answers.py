"""Constrained answers of a whole engine on a random model that prefers other tokens."""

from __future__ import annotations

import dataclasses
import json
import re

import jsonschema
import pytest

from engine.api import ChoiceFinished, Completed, Delta, FinishReason, Rejected, SamplingParams, StopRules
from engine.api.constraint import Constraint, ConstraintKind
from engine.api.events import Event
from engine.api.request import LogprobOptions, Tool, ToolChoice, ToolMode
from engine.engine import Resume
from tests.engine.real_engine import RealEngine, finishes_of, text_of, tokens_of, write_model

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "tags", "n"],
    "additionalProperties": False,
}
GREEDY, RANDOM = SamplingParams(temperature=0.0, seed=1), SamplingParams(temperature=1.0, seed=7)


def is_valid(text):
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


CONSTRAINTS = {
    "schema": (Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)), is_valid),
    "gaps": (
        Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA), whitespace=" "),
        lambda text: is_valid(text) and re.fullmatch(r'\{ ("\w+" : .* )\}', text),
    ),
    "regex": (
        Constraint(ConstraintKind.REGEX, r"[a-c]{2,6}-\d{3}"),
        lambda text: re.fullmatch(r"[a-c]{2,6}-\d{3}", text),
    ),
    "choice": (
        Constraint(ConstraintKind.CHOICE, '["yes","no","yes, but no"]'),
        lambda text: text in ("yes", "no", "yes, but no"),
    ),
    "grammar": (
        Constraint(ConstraintKind.GRAMMAR, 'root ::= "x" [0-9]{2} ("y" | "z")'),
        lambda text: re.fullmatch(r"x\d\d[yz]", text),
    ),
    "tag": (
        Constraint(
            ConstraintKind.STRUCTURAL_TAG,
            '{"type":"tag","begin":"<a>","content":{"type":"json_schema","json_schema":{"type":"boolean"}},"end":"</a>"}',
        ),
        lambda text: text in ("<a>true</a>", "<a>false</a>"),
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def engine(model):
    made = RealEngine(model)
    yield made
    made.close()


def ends_well(payloads, choice=0):
    """Return whether the grammar has ended the answer, and no other stop."""
    finish = next(payload for payload in finishes_of(payloads) if payload.choice == choice)
    return finish.reason is FinishReason.STOP and finish.stop_reason is None


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_an_answer_satisfies_its_constraint(engine, kind, sampling):
    constraint, is_right = CONSTRAINTS[kind]
    payloads = engine.answer(constraint=constraint, sampling=sampling, stop=StopRules(max_tokens=200))
    assert is_right(text_of(payloads))
    assert ends_well(payloads)


def test_each_of_several_choices_satisfies_the_constraint(engine):
    payloads = engine.answer(
        constraint=CONSTRAINTS["schema"][0], sampling=RANDOM, num_choices=4, stop=StopRules(max_tokens=200)
    )
    texts = [text_of(payloads, choice) for choice in range(4)]
    assert all(is_valid(text) for text in texts)
    assert len(set(texts)) > 1
    assert all(ends_well(payloads, choice) for choice in range(4))


def test_a_truncated_constrained_answer_has_the_reason_length(engine):
    payloads = engine.answer(constraint=CONSTRAINTS["schema"][0], sampling=GREEDY, stop=StopRules(max_tokens=5))
    assert finishes_of(payloads)[0].reason is FinishReason.LENGTH
    assert text_of(payloads) == '{"nam'


def test_an_answer_completed_by_its_last_allowed_token_ends_with_stop(engine):
    whole = engine.answer(constraint=CONSTRAINTS["choice"][0], sampling=GREEDY)
    again = engine.answer(
        constraint=CONSTRAINTS["choice"][0], sampling=GREEDY, stop=StopRules(max_tokens=len(tokens_of(whole)))
    )
    assert text_of(again) == text_of(whole)
    assert ends_well(again)


def test_a_completed_grammar_ends_the_answer_below_min_tokens(engine):
    payloads = engine.answer(
        constraint=CONSTRAINTS["choice"][0], sampling=GREEDY, stop=StopRules(max_tokens=50, min_tokens=40)
    )
    assert CONSTRAINTS["choice"][1](text_of(payloads))
    assert ends_well(payloads)


def test_an_answer_ends_only_where_its_grammar_may_end(engine):
    constraint = Constraint(ConstraintKind.REGEX, "(ab)+")
    payloads = engine.answer(constraint=constraint, sampling=RANDOM, stop=StopRules(max_tokens=300))
    assert re.fullmatch("(ab)+", text_of(payloads))


def test_logprobs_are_normalised_over_tokens_that_the_grammar_allows(engine):
    payloads = engine.answer(
        constraint=Constraint(ConstraintKind.REGEX, "[xy]"),
        sampling=GREEDY,
        logprobs=LogprobOptions(enabled=True, top=3),
    )
    entries = [entry for payload in payloads if isinstance(payload, Delta) for entry in payload.logprobs]
    allowed = [top.logprob for top in entries[0].top if top.logprob > -9000]
    assert len(allowed) == 2
    assert abs(sum(2.718281828**value for value in allowed) - 1) < 1e-3


def test_a_run_whose_masks_allow_no_token_fails_alone(engine):
    constraint = Constraint(ConstraintKind.REGEX, "[ab]+", "structured_outputs.regex")
    engine.submit("bad", constraint=constraint, sampling=dataclasses.replace(GREEDY, allowed_token_ids=(ord("z"),)))
    engine.submit("good", constraint=CONSTRAINTS["schema"][0], sampling=GREEDY, stop=StopRules(max_tokens=200))
    events = engine.events_to_end("bad", "good")
    failed = events["bad"][-1].payload
    assert (failed.code.value, failed.param) == ("invalid_value", "structured_outputs")
    assert is_valid(text_of([event.payload for event in events["good"]]))


def test_an_invalid_constraint_is_rejected_with_its_field(engine):
    (payload,) = engine.answer(constraint=Constraint(ConstraintKind.JSON_SCHEMA, '{"type":"foo"}', "response_format"))
    assert isinstance(payload, Rejected)
    assert payload.param == "response_format"


def test_a_constrained_answer_is_the_same_alone_and_in_a_crowd(model):
    """Chunked prompts, eight constrained answers at once, and preemptions in a small cache."""
    alone = RealEngine(model)
    kinds = ["long", "long", "long", *CONSTRAINTS]
    constraints = {"long": Constraint(ConstraintKind.REGEX, "[a-f]{120}")} | {
        kind: pair[0] for kind, pair in CONSTRAINTS.items()
    }
    texts = [f"{kind} {'z' * 40}" for kind in kinds]
    asked = [
        {
            "constraint": constraints[kind],
            "sampling": dataclasses.replace(RANDOM, seed=seed),
            "stop": StopRules(max_tokens=150),
        }
        for seed, kind in enumerate(kinds)
    ]
    expected = [text_of(alone.answer(text, **request)) for text, request in zip(texts, asked, strict=True)]
    alone.close()
    block_bytes = 2 * 2 * 2 * 8 * 16 * 4
    crowd = RealEngine(model, max_num_batched_tokens=24, kv_cache_bytes=20 * block_bytes)
    for index, request in enumerate(asked):
        crowd.submit(f"r{index}", texts[index], **request)
    events = crowd.events_to_end(*(f"r{index}" for index in range(len(asked))))
    assert [text_of([event.payload for event in events[f"r{index}"]]) for index in range(len(asked))] == expected
    assert crowd.core_stats().num_preemptions > 0
    crowd.close()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_a_resumed_answer_continues_under_its_grammar(engine, kind):
    asked = {"constraint": CONSTRAINTS[kind][0], "sampling": RANDOM, "stop": StopRules(max_tokens=200)}
    events = engine.events(**asked)
    expected = text_of([event.payload for event in events])
    for cut in {1, 2, len(events) // 2, len(events) - 2}:
        known = events[:cut]
        rest = engine.events(resume=Resume(tuple(known)), **asked)
        assert text_of([event.payload for event in [*known, *rest]]) == expected


def test_a_resumed_answer_that_is_complete_ends_at_once(engine):
    asked = {"constraint": CONSTRAINTS["choice"][0], "sampling": GREEDY}
    events = engine.events(**asked)
    known = [event for event in events if not isinstance(event.payload, ChoiceFinished | Completed)]
    rest = [event.payload for event in engine.events(resume=Resume(tuple(known)), **asked)]
    assert [type(payload) for payload in rest] == [ChoiceFinished, Completed]
    assert ends_well(rest)
    assert isinstance(known[0], Event)


@pytest.mark.parametrize(("bias", "thinks"), [(100.0, True), (-100.0, False)])
def test_optional_reasoning_may_precede_a_constrained_answer(model, bias, thinks):
    """The model may write the start tag or not; the answer after it follows the grammar either way."""
    thinker = RealEngine(model, reasoning_parser="granite")
    constraint = Constraint(ConstraintKind.REGEX, "[0-9]{4}")
    sampling = dataclasses.replace(GREEDY, logit_bias=((ord("H"), bias),))
    payloads = thinker.answer(
        constraint=constraint, sampling=sampling, thinking_token_budget=3, stop=StopRules(max_tokens=200)
    )
    reasoning = "".join(payload.reasoning for payload in payloads if isinstance(payload, Delta | ChoiceFinished))
    assert bool(reasoning) is thinks
    assert re.fullmatch("[0-9]{4}", text_of(payloads))
    assert ends_well(payloads)
    thinker.close()


CLOSED = {"additionalProperties": False}
WEATHER = Tool(
    "weather",
    {"type": "object", "properties": {"v": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["v"]}
    | CLOSED,
)


def test_forced_calls_have_their_arguments(engine):
    choice = ToolChoice(ToolMode.NAMED, ("weather",))
    payloads = engine.answer(tools=(WEATHER,), tool_choice=choice, sampling=RANDOM, stop=StopRules(max_tokens=100))
    calls = [call for payload in payloads if isinstance(payload, Delta | ChoiceFinished) for call in payload.tool_calls]
    assert calls[0].name == "weather"
    arguments = json.loads("".join(call.arguments for call in calls))
    assert 0 <= arguments["v"] <= 9


def test_required_calls_are_limited_to_one_if_not_parallel(engine):
    choice = ToolChoice(ToolMode.REQUIRED, is_parallel=False)
    payloads = engine.answer(tools=(WEATHER,), tool_choice=choice, sampling=RANDOM, stop=StopRules(max_tokens=100))
    calls = [call for payload in payloads if isinstance(payload, Delta | ChoiceFinished) for call in payload.tool_calls]
    assert {call.index for call in calls} == {0}
    assert finishes_of(payloads)[0].reason is FinishReason.TOOL_CALLS


def test_tool_parameters_are_checked_even_if_not_enforced(engine):
    bad = Tool("bad", {"type": "foo"})
    (payload,) = engine.answer(tools=(WEATHER, bad), tool_choice=ToolChoice(ToolMode.AUTO))
    assert (type(payload), payload.param) == (Rejected, "tools.1.function.parameters")
    unenforceable = Tool("odd", {"type": "object", "not": {"required": ["a"]}})
    payloads = engine.answer(
        tools=(unenforceable,), tool_choice=ToolChoice(ToolMode.AUTO), stop=StopRules(max_tokens=3)
    )
    assert finishes_of(payloads)
    (payload,) = engine.answer(tools=(WEATHER, unenforceable), tool_choice=ToolChoice(ToolMode.REQUIRED))
    assert payload.param == "tools.1.function.parameters"


@pytest.mark.slow
def test_a_recursive_grammar_uses_xgrammar(engine):
    """The compiler process and the core first import xgrammar, which takes seconds; other answers continue."""
    constraint = Constraint(ConstraintKind.GRAMMAR, 'root ::= "(" root? ")" "."')
    payloads = engine.answer(constraint=constraint, sampling=RANDOM, stop=StopRules(max_tokens=400))
    text = text_of(payloads)
    assert re.fullmatch(r"\(+(\)\.)+", text)
    assert text.count("(") == text.count(")")
    assert ends_well(payloads)
    engine.submit("one", constraint=constraint, sampling=GREEDY, stop=StopRules(max_tokens=20))
    engine.submit("two", constraint=CONSTRAINTS["schema"][0], sampling=RANDOM, stop=StopRules(max_tokens=200))
    events = engine.events_to_end("one", "two")
    assert is_valid(text_of([event.payload for event in events["two"]]))
