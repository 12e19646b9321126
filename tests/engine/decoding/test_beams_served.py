"""Beam search through the whole engine in float32: against transformers, and with every parameter that it supports."""

import pytest
import torch

from engine.api import (
    BeamOptions,
    ChoiceFinished,
    Completed,
    Delta,
    FinishReason,
    LogprobOptions,
    Outcome,
    ProcessorCall,
    PromptScored,
    SamplingParams,
    StopRules,
)
from engine.engine import Resume
from tests.engine.real_engine import RealEngine, finishes_of, text_of, tokens_of, write_model
from tests.engine.tiny_tokenizer import IM_END, VOCAB_SIZE, tiny_tokenizer

PROMPT = tiny_tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    return folder, write_model(folder)


@pytest.fixture(scope="module")
def engine(model):
    engine = RealEngine(model[0])
    yield engine
    engine.close()


def beams(engine, width, length_penalty=1.0, **changes):
    return engine.answer(num_choices=width, beam=BeamOptions(length_penalty), **changes)


def answers_of(payloads, width):
    return [tokens_of(payloads, choice) for choice in range(width)]


def reference(model, width, max_tokens, length_penalty, eos_id):
    """Return token ids of transformers' beams, best first, and their scores."""
    with torch.inference_mode():
        found = model.generate(
            torch.tensor([PROMPT]),
            attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
            max_new_tokens=max_tokens,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=length_penalty,
            early_stopping=False,
            do_sample=False,
            eos_token_id=eos_id,
            pad_token_id=VOCAB_SIZE - 1,
            output_scores=True,
            return_dict_in_generate=True,
        )
    answers = []
    for row in found.sequences[:, len(PROMPT) :].tolist():
        answers.append(row[: row.index(eos_id) + 1] if eos_id in row else row)
    return answers, found.sequences_scores.tolist()


@pytest.mark.parametrize(
    ("width", "max_tokens", "length_penalty"), [(3, 8, 1.0), (2, 20, 1.0), (4, 12, 0.0), (4, 24, 2.0), (5, 10, -1.0)]
)
@pytest.mark.parametrize("stop_id", [IM_END, None])
def test_beams_are_those_of_transformers(model, engine, width, max_tokens, length_penalty, stop_id):
    """Once with the usual EOS, once with a token near the end of the model's greedy answer as EOS."""
    greedy = tokens_of(engine.answer(sampling=SamplingParams(temperature=0.0), stop=StopRules(max_tokens=6)))
    stop_id = stop_id or greedy[3]
    expected, scores = reference(model[1], width, max_tokens, length_penalty, stop_id)
    stop = StopRules(max_tokens=max_tokens, ignore_eos=True, stop_token_ids=(stop_id,))
    payloads = beams(engine, width, length_penalty, stop=stop, logprobs=LogprobOptions(enabled=True))
    answers = answers_of(payloads, width)
    assert answers == expected
    for payload in payloads:
        if isinstance(payload, Delta):
            total = sum(entry.logprob for entry in payload.logprobs)
            assert total / len(payload.token_ids) ** length_penalty == pytest.approx(scores[payload.choice], abs=1e-3)
    assert payloads[-1].usage.completion_tokens == sum(map(len, answers))


def test_each_text_comes_in_one_delta_at_the_end_with_its_own_end(engine):
    payloads = beams(engine, 3, stop=StopRules(max_tokens=7))
    kinds = [(type(payload).__name__, payload.choice) for payload in payloads[1:-1]]
    assert kinds == [(name, choice) for choice in range(3) for name in ("Delta", "ChoiceFinished")]
    assert [finished.reason for finished in finishes_of(payloads)] == [FinishReason.LENGTH] * 3
    assert beams(engine, 3, stop=StopRules(max_tokens=7))[1:-1] == payloads[1:-1]


def test_a_beam_that_ends_at_the_primary_eos_names_it(engine):
    payloads = beams(engine, 2, sampling=SamplingParams(logit_bias=((IM_END, 100.0),)), stop=StopRules(max_tokens=9))
    first = finishes_of(payloads)[0]
    assert (tokens_of(payloads, 0), first.reason, first.stop_reason) == ([IM_END], FinishReason.STOP, IM_END)
    ignored = beams(
        engine, 2, sampling=SamplingParams(logit_bias=((IM_END, 100.0),)), stop=StopRules(max_tokens=3, ignore_eos=True)
    )
    assert (tokens_of(ignored, 0), finishes_of(ignored)[0].reason) == ([IM_END] * 3, FinishReason.LENGTH)


def test_masks_biases_and_penalties_hold_in_a_search(engine):
    allowed = tuple(range(97, 103))
    payloads = beams(engine, 2, sampling=SamplingParams(allowed_token_ids=allowed), stop=StopRules(max_tokens=6))
    assert all(set(tokens) <= set(allowed) for tokens in answers_of(payloads, 2))
    two = SamplingParams(allowed_token_ids=(97, 98), presence_penalty=2.0, frequency_penalty=2.0)
    payloads = beams(engine, 1, sampling=two, stop=StopRules(max_tokens=8))
    assert {97, 98} == set(tokens_of(payloads))
    barred = SamplingParams(allowed_token_ids=(97, 98), bad_words=("b",))
    assert tokens_of(beams(engine, 1, sampling=barred, stop=StopRules(max_tokens=4))) == [97] * 4


def test_logits_processors_apply_in_a_beam_search(engine):
    """They were accepted without effect, as the search took its values before them."""
    trie = ProcessorCall("token_trie", ([[97, 98, 99], [97, 100, 101]],))
    payloads = beams(engine, 2, sampling=SamplingParams(processors=(trie,)), stop=StopRules(max_tokens=3))
    assert sorted(answers_of(payloads, 2)) == [[97, 98, 99], [97, 100, 101]]


def test_reported_logprobs_are_raw_although_the_search_uses_processed_ones(engine):
    """Reported values equal the scores of the text as a prompt, although a bias steers the search."""
    bias = SamplingParams(logit_bias=((97, 5.0), (98, 5.0)))
    payloads = beams(
        engine, 2, sampling=bias, stop=StopRules(max_tokens=5), logprobs=LogprobOptions(enabled=True, top=3)
    )
    (delta,) = [payload for payload in payloads if isinstance(payload, Delta) and payload.choice == 0]
    drawn = engine.answer(
        sampling=SamplingParams(temperature=0.0, logit_bias=((97, 5.0), (98, 5.0))),
        stop=StopRules(max_tokens=5),
        logprobs=LogprobOptions(enabled=True, top=3),
    )
    first = next(payload for payload in drawn if isinstance(payload, Delta)).logprobs[0]
    assert [entry.token_id for entry in delta.logprobs[0].top] == [entry.token_id for entry in first.top]
    assert delta.logprobs[0].top[0].logprob == pytest.approx(first.top[0].logprob, abs=1e-4)
    assert len(delta.logprobs) == len(delta.token_ids)


def test_a_stop_string_ends_a_beam_and_is_cut(engine):
    plain = beams(engine, 2, stop=StopRules(max_tokens=12))
    text = text_of(plain, 0)
    stop = text[len(text) // 2 :][:2]
    payloads = beams(engine, 2, stop=StopRules(max_tokens=12, stop=(stop,)))
    ended = [finished for finished in finishes_of(payloads) if finished.stop_reason == stop]
    assert ended
    for finished in finishes_of(payloads):
        assert stop not in text_of(payloads, finished.choice)


def test_min_tokens_delay_the_end_of_every_beam(engine):
    sampling = SamplingParams(logit_bias=((IM_END, 100.0),))
    payloads = beams(engine, 2, sampling=sampling, stop=StopRules(max_tokens=9, min_tokens=4))
    assert all(len(tokens) >= 5 for tokens in answers_of(payloads, 2))


def test_scores_of_the_prompt_come_before_the_answers(engine):
    payloads = beams(engine, 2, stop=StopRules(max_tokens=4), logprobs=LogprobOptions(prompt=1))
    assert [type(payload) for payload in payloads].index(PromptScored) == 1
    assert len(payloads[1].entries) == len(PROMPT)


def test_missing_answers_of_a_search_are_empty(engine):
    payloads = beams(engine, 3, sampling=SamplingParams(allowed_token_ids=(97,)), stop=StopRules(max_tokens=2))
    assert answers_of(payloads, 3) == [[97, 97], [], []]
    assert len(finishes_of(payloads)) == 3


def test_a_round_takes_one_step_and_computes_few_extra_tokens(engine):
    """One step per token of the longest beam, at any width."""
    before = engine.core_stats()
    beams(engine, 4, stop=StopRules(max_tokens=20, ignore_eos=True), text="a fresh and rather longer prompt " * 4)
    assert engine.core_stats().num_steps - before.num_steps <= 20 + 8


def test_resumed_search_emits_only_unlogged_events(model, engine):
    whole = engine.events(num_choices=2, beam=BeamOptions(), stop=StopRules(max_tokens=6))
    for keep in range(1, len(whole)):
        resumed = engine.events(
            resume=Resume(tuple(whole[:keep])), num_choices=2, beam=BeamOptions(), stop=StopRules(max_tokens=6)
        )
        assert [event.payload for event in resumed[:-1]] == [event.payload for event in whole[keep:-1]]
        assert resumed[0].start == whole[keep - 1].start + whole[keep - 1].count
        assert resumed[-1].payload.usage.completion_tokens == whole[-1].payload.usage.completion_tokens


def test_a_beam_search_can_be_aborted(engine):
    engine.submit("run", num_choices=2, beam=BeamOptions(), stop=StopRules(ignore_eos=True))
    engine.engine.abort("run", Outcome.STOPPED)
    events = engine.events_to_end("run")["run"]
    assert isinstance(events[-1].payload, Completed)
    assert events[-1].payload.outcome in (Outcome.STOPPED, Outcome.FINISHED)
    assert (
        not any(isinstance(event.payload, ChoiceFinished) for event in events)
        or events[-1].payload.outcome is Outcome.FINISHED
    )


# best_of


def test_the_best_of_several_answers_are_reported_best_first(engine):
    asked = {
        "sampling": SamplingParams(temperature=1.5, seed=7),
        "stop": StopRules(max_tokens=6),
        "logprobs": LogprobOptions(enabled=True),
    }
    every = engine.answer(num_choices=5, **asked)
    means = {
        choice: sum(
            entry.logprob
            for delta in every
            if isinstance(delta, Delta) and delta.choice == choice
            for entry in delta.logprobs
        )
        / len(tokens_of(every, choice))
        for choice in range(5)
    }
    ranked = sorted(means, key=lambda choice: -means[choice])
    best = engine.answer(num_choices=2, best_of=5, **asked)
    assert answers_of(best, 2) == [tokens_of(every, choice) for choice in ranked[:2]]
    assert [finished.choice for finished in finishes_of(best)] == [0, 1]
    assert best[-1].usage.completion_tokens == every[-1].usage.completion_tokens
    assert answers_of(engine.answer(num_choices=5, best_of=5, **asked), 5) == [
        tokens_of(every, choice) for choice in ranked
    ]
    without = engine.answer(num_choices=2, best_of=5, **asked | {"logprobs": LogprobOptions()})
    assert answers_of(without, 2) == answers_of(best, 2)
    assert all(payload.logprobs is None for payload in without if isinstance(payload, Delta))


def test_best_of_run_emits_only_at_its_end_and_resumes_after_its_log(engine):
    asked = {"sampling": SamplingParams(seed=3), "stop": StopRules(max_tokens=4), "num_choices": 2, "best_of": 3}
    whole = engine.events(**asked)
    for keep in range(1, len(whole)):
        resumed = engine.events(resume=Resume(tuple(whole[:keep])), **asked)
        assert [event.payload for event in resumed[:-1]] == [event.payload for event in whole[keep:-1]]
