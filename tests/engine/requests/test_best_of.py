"""Best-of answers are ranked by the mean log-probability of all their tokens, with any other parameter."""

import dataclasses

import pytest

from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Constraint,
    ConstraintKind,
    Delta,
    FinishReason,
    LogprobOptions,
    Outcome,
    PromptScored,
    SamplingParams,
    StopRules,
)
from engine.messages import AbortSequences, SampledLogprobs
from tests.engine.real_engine import RealEngine, finishes_of, text_of, tokens_of, write_model
from tests.engine.stage import output, payloads
from tests.engine.tiny_tokenizer import IM_END


def ask(stage, best_of, **changes):
    stage.submit(**{"best_of": best_of, "sampling": SamplingParams(seed=5)} | changes)
    return stage.core.hear_sequences(best_of)


def say(stage, sequence, values, token_ids=None, finish="length", **more):
    """Send a core output for a choice: tokens (by default the letter of its number) with these log-probabilities."""
    token_ids = token_ids or [ord("a") + sequence.sampling.seed - 5] * len(values)
    stage.core.say(output(sequence, token_ids, finish, logprobs=[SampledLogprobs(value) for value in values], **more))


def texts(events):
    count = 1 + max(payload.choice for payload in events if isinstance(payload, ChoiceFinished))
    return [text_of(events, choice) for choice in range(count)]


def test_candidates_differ_in_their_seeds_and_report_log_probabilities(stage):
    sequences = ask(stage, 3)
    assert [sequence.sampling.seed for sequence in sequences] == [5, 6, 7]
    assert all(sequence.logprobs.enabled for sequence in sequences)


def test_candidates_are_ranked_by_mean_log_probability(stage):
    first, second, third = ask(stage, 3, num_choices=3)
    say(stage, first, [-0.5])
    say(stage, second, [-0.4, -0.2, -0.6, -0.2], token_ids=[*b"bbb", IM_END], finish="stop")
    say(stage, third, [-0.1, -0.3])
    events = payloads(stage.events_to_end())
    assert texts(events) == ["cc", "bbb", "a"]
    assert [(end.choice, end.reason) for end in finishes_of(events)] == [
        (0, FinishReason.LENGTH),
        (1, FinishReason.STOP),
        (2, FinishReason.LENGTH),
    ]
    assert events[-1].usage.completion_tokens == 7


def test_the_end_token_counts_in_the_mean(stage):
    first, second = ask(stage, 2)
    say(stage, first, [-0.1, -3.0], token_ids=[ord("a"), IM_END], finish="stop")
    say(stage, second, [-1.0, -1.0], token_ids=[ord("b"), IM_END], finish="stop")
    events = payloads(stage.events_to_end())
    assert texts(events) == ["b"]
    assert events[-1].usage.completion_tokens == 4, "of all candidates"


def test_ties_go_to_the_lower_number(stage):
    sequences = ask(stage, 4, num_choices=3)
    for sequence, value in zip(reversed(sequences), (-1.0, -0.5, -0.5, -1.0), strict=True):
        say(stage, sequence, [value, value])
    assert texts(payloads(stage.events_to_end())) == ["bb", "cc", "aa"]


def test_tokens_behind_a_stop_string_are_no_part_of_the_answer(stage):
    first, second = ask(stage, 2, num_choices=2, stop=StopRules(stop=("x",)))
    say(stage, first, [-0.2, -0.2, -9.0], token_ids=[*b"ax", ord("z")], finish=None)
    assert stage.core.hear(AbortSequences).seq_ids == [first.seq_id]
    say(stage, second, [-0.3, -0.3])
    events = payloads(stage.events_to_end())
    assert texts(events) == ["a", "bb"]
    assert finishes_of(events)[0].stop_reason == "x"
    assert events[-1].usage.completion_tokens == 4


@pytest.mark.parametrize("is_asked", [True, False])
def test_log_probabilities_are_sent_only_if_requested(stage, is_asked):
    first, second = ask(stage, 2, logprobs=LogprobOptions(enabled=is_asked))
    say(stage, first, [-2.0])
    say(stage, second, [-1.0])
    (delta,) = [payload for payload in payloads(stage.events_to_end()) if isinstance(payload, Delta)]
    assert (delta.choice, delta.text) == (0, "b")
    assert [entry.logprob for entry in delta.logprobs or ()] == ([-1.0] if is_asked else [])


def test_the_prompt_is_scored_once_and_first(stage):
    first, second = ask(stage, 2, logprobs=LogprobOptions(prompt=0))
    say(stage, second, [-1.0])
    scores = [SampledLogprobs(-1.0, rank=1, token_id=token_id) for token_id in first.prompt_ids[1:]]
    say(stage, first, [-2.0], prompt_logprobs=scores)
    events = payloads(stage.events_to_end())
    assert [type(event) for event in events] == [Admitted, PromptScored, Delta, ChoiceFinished, Completed]
    assert texts(events) == ["b"]


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.STOPPED])
def test_a_run_ended_early_publishes_no_text_and_counts_all_tokens(stage, outcome):
    first, second = ask(stage, 2)
    say(stage, first, [-2.0, -1.0])
    stage.engine.abort("run", outcome)
    stage.core.answer_abort()
    events = payloads(stage.events_to_end())
    assert [type(event) for event in events] == [Admitted, Completed]
    assert (events[-1].outcome, events[-1].usage.completion_tokens) == (outcome, 2)


# With a model


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    engine = RealEngine(folder)
    yield engine
    engine.close()


ASKED = {"best_of": 3, "num_choices": 2, "stop": StopRules(max_tokens=6), "logprobs": LogprobOptions(enabled=True)}
SEEDED = SamplingParams(temperature=1.3, seed=2)


def test_a_prediction_does_not_change_the_best_answers(engine):
    plain = engine.answer(sampling=SEEDED, **ASKED)
    guess = text_of(plain, 0)
    predicted = engine.answer(sampling=SEEDED, prediction=guess, **ASKED)
    assert [tokens_of(predicted, choice) for choice in (0, 1)] == [tokens_of(plain, choice) for choice in (0, 1)]
    assert predicted[-1].usage.completion_tokens == plain[-1].usage.completion_tokens


def test_every_candidate_keeps_to_a_constraint_and_is_ranked_by_the_model_alone(engine):
    asked = ASKED | {"constraint": Constraint(ConstraintKind.REGEX, "(he|or){2}(a|b)"), "sampling": SEEDED}
    best = engine.answer(**asked)
    every = engine.answer(**asked | {"num_choices": 3, "best_of": None})
    means = {}
    for choice in range(3):
        entries = [
            entry
            for payload in every
            if isinstance(payload, Delta) and payload.choice == choice
            for entry in payload.logprobs
        ]
        means[choice] = sum(entry.logprob for entry in entries) / len(entries)
    ranked = sorted(means, key=lambda choice: (-means[choice], choice))[:2]
    assert [text_of(best, place) for place in (0, 1)] == [text_of(every, choice) for choice in ranked]
    assert dataclasses.replace(best[-1].usage, cached_tokens=0) == dataclasses.replace(every[-1].usage, cached_tokens=0)
