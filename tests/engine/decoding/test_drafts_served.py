"""Predictions through the whole engine in float32 change no answer, with any other parameter."""

import dataclasses
import threading

import pytest

from engine.api import BeamOptions, Constraint, ConstraintKind, LogprobOptions, Outcome, SamplingParams, StopRules
from engine.core.loop import EngineCore
from engine.decoding.costs import StepCosts
from engine.engine import Resume
from tests.engine.real_engine import RealEngine, finishes_of, text_of, tokens_of, write_model
from tests.engine.tiny_tokenizer import tiny_tokenizer

GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    write_model(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def free_rows():
    """Make the number of drafts independent of this machine's speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepCosts, "measure", lambda time_rows, max_rows: StepCosts.flat())
        yield


@pytest.fixture(scope="module")
def engine(folder):
    engine = RealEngine(folder)
    yield engine
    engine.close()


def ascii_only(**changes):
    """Return answers of characters that any text can predict."""
    return SamplingParams(allowed_token_ids=tuple(range(32, 127)), **changes)


def essence(payloads):
    """Return what a prediction may not change: tokens and texts per choice, and usage."""
    usage = dataclasses.replace(
        payloads[-1].usage, accepted_prediction_tokens=0, rejected_prediction_tokens=0, cached_tokens=0
    )
    choices = range(1 + max(finished.choice for finished in finishes_of(payloads)))
    return [tokens_of(payloads, choice) for choice in choices], [text_of(payloads, choice) for choice in choices], usage


def logprobs_of(payloads):
    return [entry.logprob for payload in payloads for entry in getattr(payload, "logprobs", None) or ()]


ASKED = {
    "greedy": {"sampling": ascii_only(temperature=0.0), "stop": StopRules(max_tokens=40)},
    "seeded": {"sampling": ascii_only(temperature=0.8, seed=5), "stop": StopRules(max_tokens=40)},
    "filtered": {
        "sampling": ascii_only(temperature=1.2, seed=5, top_k=9, top_p=0.9, min_p=0.01),
        "stop": StopRules(max_tokens=40),
    },
    "penalised": {
        "sampling": ascii_only(
            temperature=0.5, seed=5, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.2
        ),
        "stop": StopRules(max_tokens=40),
    },
    "with bad words": {
        "sampling": ascii_only(temperature=0.0, bad_words=("a", "or")),
        "stop": StopRules(max_tokens=40),
    },
    "two choices": {"sampling": ascii_only(seed=5), "num_choices": 2, "stop": StopRules(max_tokens=30)},
    "under a grammar": {
        "constraint": Constraint(ConstraintKind.REGEX, "[a-z]{12} [0-9]{8}"),
        "sampling": SamplingParams(seed=5, temperature=0.7),
        "stop": StopRules(max_tokens=40),
    },
    "min_tokens": {
        "sampling": ascii_only(seed=5),
        "stop": StopRules(max_tokens=30, min_tokens=10, stop_token_ids=tuple(range(60, 90))),
    },
}


@pytest.mark.parametrize("name", ASKED)
def test_prediction_changes_only_the_number_of_steps(engine, name):
    asked = ASKED[name]
    plain = engine.answer(**asked)
    (_, texts, usage) = essence(plain)
    text = texts[0]
    half_right = text[: len(text) // 2] + "??" + text[len(text) // 2 + 1 :]
    for prediction in (text, half_right, "something else altogether", text + text, ""):
        payloads = engine.answer(prediction=prediction, **asked)
        assert essence(payloads) == essence(plain), prediction
        accepted = payloads[-1].usage.accepted_prediction_tokens
        assert accepted <= usage.completion_tokens
        if prediction == text and usage.completion_tokens > 20:
            assert accepted >= len(tokens_of(plain)) // 2


def test_a_right_prediction_saves_most_steps(engine):
    asked = {"sampling": ascii_only(temperature=0.0), "stop": StopRules(max_tokens=60)}
    text = text_of(engine.answer(**asked))
    before = engine.core_stats().num_steps
    payloads = engine.answer(prediction=text, **asked)
    assert engine.core_stats().num_steps - before < 40
    assert payloads[-1].usage.accepted_prediction_tokens > 30
    wrong = engine.answer(prediction=text[:20] + "@" * 40, **asked)
    assert 0 < wrong[-1].usage.rejected_prediction_tokens <= 80  # at most two proposals before it is dropped


def test_log_probabilities_equal_those_without_a_prediction(engine):
    asked = {
        "sampling": ascii_only(seed=9),
        "stop": StopRules(max_tokens=30),
        "logprobs": LogprobOptions(enabled=True, top=2),
    }
    plain = engine.answer(**asked)
    payloads = engine.answer(prediction=text_of(plain), **asked)
    assert logprobs_of(payloads) == pytest.approx(logprobs_of(plain), abs=1e-4)


def test_a_stop_string_among_predicted_tokens_ends_the_answer_there(engine):
    asked = {"sampling": ascii_only(temperature=0.0), "stop": StopRules(max_tokens=40)}
    text = text_of(engine.answer(**asked))
    stop = text[20:23]
    stopped = engine.answer(sampling=asked["sampling"], stop=StopRules(max_tokens=40, stop=(stop,)))
    payloads = engine.answer(sampling=asked["sampling"], stop=StopRules(max_tokens=40, stop=(stop,)), prediction=text)
    assert essence(payloads) == essence(stopped)
    assert finishes_of(payloads)[0].stop_reason == stop


def test_a_prediction_longer_than_the_context_is_cut(engine):
    payloads = engine.answer(prediction="a b c d " * 5000, sampling=GREEDY, stop=StopRules(max_tokens=5))
    assert payloads[-1].outcome is Outcome.FINISHED
    whole = engine.answer(
        sampling=ascii_only(temperature=0.0), stop=StopRules(ignore_eos=True), prediction="a b c d " * 500
    )
    assert len(tokens_of(whole)) == 512 - len(
        tiny_tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    )


@pytest.mark.parametrize("keep", [2, 9, 20])
def test_resumed_answer_still_follows_its_prediction(engine, keep):
    asked = {"sampling": ascii_only(seed=4, temperature=0.7), "stop": StopRules(max_tokens=40)}
    events = engine.events(**asked)
    text = text_of([event.payload for event in events])
    resumed = engine.events(resume=Resume(tuple(events[:keep])), prediction=text, **asked)
    assert tokens_of([event.payload for event in [*events[:keep], *resumed]]) == tokens_of(
        [event.payload for event in events]
    )


@pytest.mark.parametrize("lookup", [False, True])
def test_preempted_requests_with_predictions_answer_as_alone(folder, engine, lookup, monkeypatch):
    """Few blocks, many sequences, some with a prediction: the block accounts balance and no answer changes."""
    wanted = {
        f"run-{i}": {"sampling": ascii_only(seed=i, temperature=0.6), "stop": StopRules(max_tokens=60)}
        for i in range(6)
    }
    alone = {run_id: engine.answer(text=run_id, **asked) for run_id, asked in wanted.items()}
    have_come, step = threading.Event(), EngineCore.step
    monkeypatch.setattr(EngineCore, "step", lambda core: have_come.wait(60) and step(core))
    crowd = RealEngine(folder, kv_cache_bytes=14 << 12, prompt_lookup=lookup, max_model_len=128)
    for run_id, asked in wanted.items():
        text = text_of(alone[run_id])
        crowd.submit(run_id, run_id, prediction=text[:30] + "?" + text[31:] if run_id != "run-3" else None, **asked)
    have_come.set()
    events = crowd.events_to_end(*wanted)
    stats = crowd.core_stats()
    crowd.close()
    assert stats.num_preemptions > 0
    for run_id in wanted:
        assert tokens_of([event.payload for event in events[run_id]]) == tokens_of(alone[run_id]), run_id


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_prompt_lookup_changes_only_the_number_of_steps(folder, batch_invariant):
    """Answers of few letters repeat themselves; greedy, seeded, filtered and penalised."""
    few = {"allowed_token_ids": (97, 98, 99), "seed": 5}
    wanted = [
        SamplingParams(temperature=temperature, **few, **more)
        for temperature, more in (
            (0.0, {}),
            (0.7, {}),
            (0.7, {"top_k": 2, "top_p": 0.9}),
            (0.3, {"frequency_penalty": 0.2}),
        )
    ]
    answers, steps = [], []
    for prompt_lookup in (False, True):
        engine = RealEngine(folder, prompt_lookup=prompt_lookup, batch_invariant=batch_invariant, prefix_caching=False)
        answers.append(
            [essence(engine.answer(text="abcabcabc", sampling=each, stop=StopRules(max_tokens=50))) for each in wanted]
        )
        steps.append(engine.core_stats().num_steps)
        engine.close()
    assert answers[0] == answers[1]
    assert steps[1] < 0.8 * steps[0]


def test_beam_search_ignores_a_prediction(engine):
    asked = {"beam": BeamOptions(), "num_choices": 2, "stop": StopRules(max_tokens=6)}
    plain = engine.answer(**asked)
    assert engine.answer(prediction=text_of(plain), **asked)[1:-1] == plain[1:-1]
