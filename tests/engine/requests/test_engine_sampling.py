"""Sampling requests in the engine: refusals, core messages, scored prompts, rows without a token."""

import dataclasses

import pytest

from engine.api import (
    Admitted,
    Completed,
    Constraint,
    ConstraintKind,
    Delta,
    ErrorCode,
    Failed,
    LogprobOptions,
    Outcome,
    ProcessorCall,
    PromptScored,
    Rejected,
    SamplingParams,
    StopRules,
)
from engine.engine import Resume
from engine.messages import AbortSequences, DefineGrammar, ProcessorParameter, ProcessorSpec, SampledLogprobs
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import check_positions, output, payloads
from tests.engine.tiny_tokenizer import tiny_tokenizer

GUARD = ProcessorSpec("guard", [ProcessorParameter("size", "int", 1, 9, is_required=True)])
SCORED = LogprobOptions(prompt=1)


def entries_of(sequence):
    """An entry for each token of the prompt but the first: that token, and token 97 as the alternative."""
    return [
        SampledLogprobs(-place / 8, [97], [-0.5], place, token_id)
        for place, token_id in enumerate(sequence.prompt_ids)
        if place
    ]


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (SamplingParams(logit_bias=((300, 1.0),)), "logit_bias"),
        (SamplingParams(allowed_token_ids=(-1,)), "allowed_token_ids"),
        (SamplingParams(bad_words=("x" * 1025,)), "bad_words"),
        (SamplingParams(processors=(ProcessorCall("os.system"),)), "logits_processors"),
        (SamplingParams(processors=(ProcessorCall("guard", (10,)),)), "logits_processors.0.args.0"),
    ],
)
def test_unknown_token_ids_and_processors_are_rejected_before_the_core_is_involved(make_stage, sampling, param):
    stage = make_stage(ScriptedCore(dataclasses.replace(READY, processors=[GUARD])))
    stage.submit(sampling=sampling)
    ((event,),) = stage.publication().values()
    assert isinstance(event.payload, Rejected)
    assert (event.payload.code, event.payload.param) == (ErrorCode.INVALID_VALUE, param)
    assert stage.core.has_heard_all()


def test_bad_words_and_processors_are_sent_to_the_core(make_stage):
    stage = make_stage(ScriptedCore(dataclasses.replace(READY, processors=[GUARD])))
    call = ProcessorCall("guard", (3,))
    stage.submit(sampling=SamplingParams(bad_words=("ab",), processors=(call,), processor_args={"free": 1}))
    (sequence,) = stage.core.hear_sequences()
    tokenizer = tiny_tokenizer()
    assert sequence.bad_word_ids == [tokenizer.encode("ab"), tokenizer.encode(" ab")]
    assert (sequence.sampling.processors, sequence.sampling.processor_args) == ((call,), {"free": 1})


def test_a_run_can_be_aborted_while_a_finished_choice_waits_for_prompt_scores(stage):
    """Such a run never ended, as the core does not answer an abort of a finished choice."""
    stage.submit(logprobs=SCORED, num_choices=2)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, prompt_logprobs=entries_of(first)[:3]), output(second, b"a", "length"))
    stage.engine.abort("run", Outcome.STOPPED)
    stage.core.hear(AbortSequences)
    stage.core.say(output(first, finish="aborted"))
    assert [type(payload) for payload in payloads(stage.events_to_end())] == [Admitted, Completed]


def test_a_run_whose_output_cannot_be_processed_fails_without_a_gap(stage):
    stage.submit(logprobs=dataclasses.replace(SCORED, enabled=True))
    (sequence,) = stage.core.hear_sequences()
    unequal = SampledLogprobs(-1.0, [97], [])
    stage.core.say(output(sequence, b"a", logprobs=[unequal], prompt_logprobs=entries_of(sequence)))
    assert [type(payload) for payload in payloads(stage.events_to_end())] == [Admitted, Failed]


def test_prompt_scores_are_one_event_before_the_first_token(stage):
    stage.submit(logprobs=SCORED)
    (sequence,) = stage.core.hear_sequences()
    entries = entries_of(sequence)
    stage.core.say(output(sequence, prompt_logprobs=entries[:3], num_cached=0))
    stage.core.say(output(sequence, prompt_logprobs=entries[3:7]))
    stage.core.say(output(sequence, b"a", prompt_logprobs=entries[7:]))
    stage.core.say(output(sequence, b"b", "length"))
    admitted, scored, *rest = payloads(stage.events_to_end())
    assert isinstance(admitted, Admitted)
    assert [type(payload) for payload in rest[:2]] == [Delta, Delta]
    first, *others = scored.entries
    assert first == ()
    assert [(own.token_id, own.logprob, own.rank) for own, _ in others] == [
        (token_id, -place / 8, place) for place, token_id in enumerate(sequence.prompt_ids) if place
    ]
    assert {(best.token_id, best.logprob, best.rank, best.token) for _, best in others} == {(97, -0.5, 1, "a")}
    spelled = "".join(own.token for own, _ in others)
    assert (tiny_tokenizer().token_bytes(sequence.prompt_ids[0]) + spelled.encode()).decode() == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_one_choice_scores_the_prompt_and_the_other_choices_wait(stage):
    stage.submit(num_choices=3, logprobs=SCORED, stop=StopRules(max_tokens=2))
    first, second, third = stage.core.hear_sequences(3)
    assert [sequence.logprobs.prompt for sequence in (first, second, third)] == [1, None, None]
    entries = entries_of(first)
    stage.core.say(output(first, prompt_logprobs=entries[:2]), output(second, b"x"), output(third, b"y"))
    stage.core.say(output(second, b"X", "length"))
    stage.core.say(output(first, b"z", prompt_logprobs=entries[2:]), output(third, b"Y", "length"))
    stage.core.say(output(first, b"Z", "length"))
    _, scored, *rest = payloads(stage.events_to_end())
    assert isinstance(scored, PromptScored)
    texts = ["", "", ""]
    for payload in rest[:-1]:
        texts[payload.choice] += payload.text
    assert texts == ["zZ", "xX", "yY"]
    assert (rest[-1].outcome, rest[-1].usage.completion_tokens) == (Outcome.FINISHED, 6)


@pytest.mark.parametrize("is_scored", [False, True])
def test_a_new_core_rescores_the_prompt_unless_scores_were_reported(make_stage, is_scored):
    stage = make_stage(ScriptedCore(READY), ScriptedCore(READY))
    stage.submit(num_choices=2, logprobs=SCORED, stop=StopRules(max_tokens=2))
    first, second = stage.core.hear_sequences(2)
    entries = entries_of(first)
    stage.core.say(output(second, b"x"), output(first, prompt_logprobs=entries[:4]))
    if is_scored:
        stage.core.say(output(first, b"z", prompt_logprobs=entries[4:]))
    stage.core.die()
    again, other = stage.cores[1].hear_sequences(2)
    assert [again.logprobs.prompt, other.logprobs.prompt] == [None if is_scored else 1, None]
    assert [bytes(again.output_ids), bytes(other.output_ids)] == ([b"z", b"x"] if is_scored else [b"", b""])
    if not is_scored:
        stage.cores[1].say(output(again, b"z", prompt_logprobs=entries))
        stage.cores[1].say(output(other, b"x"))
    stage.cores[1].say(output(again, b"Z", "length"), output(other, b"X", "length"))
    _, scored, *rest = payloads(stage.events_to_end())
    assert isinstance(scored, PromptScored)
    assert [type(payload) for payload in rest].count(PromptScored) == 0
    assert len(scored.entries) == len(first.prompt_ids)
    texts = ["", ""]
    for payload in rest[:-1]:
        texts[payload.choice] += payload.text
    assert texts == ["zZ", "xX"]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_resumed_run_reports_prompt_scores_once(make_stage, keep):
    first = make_stage()
    first.submit(logprobs=SCORED, stop=StopRules(max_tokens=2))
    (sequence,) = first.core.hear_sequences()
    first.core.say(output(sequence, b"z", prompt_logprobs=entries_of(sequence)))
    first.core.say(output(sequence, b"Z", "length"))
    logged = first.events_to_end()[:keep]
    second = make_stage()
    second.submit(logprobs=SCORED, stop=StopRules(max_tokens=2), resume=Resume(tuple(logged)))
    (again,) = second.core.hear_sequences()
    assert again.logprobs.prompt == (1 if keep == 1 else None)
    second.core.say(
        output(
            again, b"zZ"[len(again.output_ids) :], "length", prompt_logprobs=entries_of(again) if keep == 1 else None
        )
    )
    events = check_positions([*logged, *second.events_to_end()])
    assert [type(event.payload) for event in events].count(PromptScored) == 1
    assert isinstance(events[1].payload, PromptScored)


def test_a_run_aborted_before_its_prompt_is_scored_ends_without_scores(stage):
    stage.core.answers_aborts = True
    stage.submit(num_choices=2, logprobs=SCORED)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(second, b"x", num_cached=0))
    stage.core.say(output(first, prompt_logprobs=entries_of(first)[:2]))
    stage.engine.abort("run", Outcome.STOPPED)
    admitted, completed = payloads(stage.events_to_end())
    assert (completed.outcome, completed.usage.completion_tokens) == (Outcome.STOPPED, 0)
    assert isinstance(completed, Completed)


@pytest.mark.parametrize(
    ("changes", "core_says", "field"),
    [
        ({}, "allowed_token_ids", "allowed_token_ids"),
        (
            {"constraint": Constraint(ConstraintKind.JSON_OBJECT, param="response_format")},
            "structured_outputs",
            "response_format",
        ),
        (
            {"constraint": Constraint(ConstraintKind.REGEX, "a", "structured_outputs.regex")},
            "structured_outputs",
            "structured_outputs",
        ),
        ({}, "structured_outputs", "tool_choice"),
    ],
)
def test_a_choice_whose_request_forbids_every_token_fails_the_run_with_the_field(stage, changes, core_says, field):
    """`structured_outputs` is the field of every grammar; the message names its source."""
    stage.submit(**changes)
    if changes:
        stage.core.hear(DefineGrammar)
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, finish="failed", failed_param=core_says, num_cached=0))
    _, failed = payloads(stage.events_to_end())
    assert isinstance(failed, Failed)
    assert (failed.code, failed.param, failed.outcome) == (ErrorCode.INVALID_VALUE, core_says, Outcome.FAILED)
    assert failed.message.startswith(f"{field} and")
