"""Runs without generated tokens: reads, embeddings and scored prompts."""

import math

import pytest

from engine.api import (
    Admitted,
    BeamOptions,
    ChoiceFinished,
    Completed,
    Embedded,
    EmbedOptions,
    ErrorCode,
    Event,
    Failed,
    FinishReason,
    LogprobOptions,
    Outcome,
    PromptOptions,
    PromptScored,
    RawPrompt,
    Rejected,
    SamplingParams,
    StopRules,
    Task,
    ToolChoice,
    ToolMode,
    Usage,
)
from engine.engine import Resume
from engine.messages import SampledLogprobs
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import output, payloads
from tests.engine.tiny_tokenizer import tiny_tokenizer

TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
TOKENIZER = tiny_tokenizer()
IDS = tuple(TOKENIZER.encode(TEXT))
ALL = PromptOptions(returns_ids=True, returns_text=True, returns_tokens=True)


@pytest.fixture
def embedding(make_stage):
    import dataclasses

    return make_stage(ScriptedCore(dataclasses.replace(READY, hidden_size=4)))


def read(stage, **changes):
    stage.submit(task=Task.READ, **{"prompt": ALL} | changes)
    return payloads(stage.events_to_end())


def refusal(stage, **changes):
    stage.submit(**changes)
    ((event,),) = stage.publication().values()
    assert isinstance(event.payload, Rejected)
    return event.payload


def test_a_tokenize_run_returns_its_prompt_and_uses_no_tokens(stage):
    admitted, completed = read(stage)
    assert admitted == Admitted(
        len(IDS), 0, 0, IDS, TEXT, tuple(TOKENIZER.token_bytes(token_id).decode() for token_id in IDS), 512
    )
    assert isinstance(completed, Completed)
    assert (completed.outcome, completed.usage) == (Outcome.FINISHED, Usage())
    assert stage.core.has_heard_all()
    assert not stage.engine._runs


def test_only_requested_forms_of_the_prompt_are_returned(stage):
    admitted, _ = read(stage, prompt=PromptOptions())
    assert (admitted.prompt_ids, admitted.prompt_text, admitted.prompt_tokens) == (None, None, None)


def test_a_prompt_longer_than_the_context_can_be_counted(stage):
    admitted, _ = read(stage, text="a" * 40_000)
    assert admitted.num_prompt_tokens == len(IDS) - 2 + 40_000
    assert admitted.context_length == 512


def test_token_ids_are_returned_as_text_with_control_tokens(stage):
    admitted, _ = read(stage, raw=RawPrompt(token_ids=IDS))
    assert (admitted.prompt_text, admitted.prompt_ids) == (TEXT, IDS)
    empty, _ = read(stage, raw=RawPrompt(token_ids=()))
    assert (empty.prompt_text, empty.prompt_ids, empty.num_prompt_tokens) == ("", (), 0)


def test_control_tokens_spelled_in_ordinary_text_stay_characters(stage):
    read_as_control, _ = read(stage, raw=RawPrompt("<|im_start|>"))
    read_as_text, _ = read(stage, raw=RawPrompt("<|im_start|>", is_ordinary=True))
    assert len(read_as_control.prompt_ids) == 1
    assert "".join(read_as_text.prompt_tokens) == "<|im_start|>"
    assert read_as_control.prompt_ids[0] not in read_as_text.prompt_ids


def test_half_a_character_is_the_text_of_the_token_that_completes_it(stage):
    admitted, _ = read(stage, raw=RawPrompt("a☺"))
    assert admitted.prompt_tokens == ("a", "", "", "☺")


def test_a_read_ignores_options_of_the_answer(stage):
    admitted, _ = read(stage, stop=StopRules(max_tokens=10**9), tool_choice=ToolChoice(ToolMode.AUTO))
    assert admitted.num_prompt_tokens == len(IDS)


def test_a_resumed_read_publishes_only_unlogged_events(stage):
    stage.submit(task=Task.READ, resume=Resume((Event(0, 1, Admitted(5, 0, 0)),)))
    (events,) = stage.publication().values()
    assert [(event.start, type(event.payload)) for event in events] == [(1, Completed)]


@pytest.mark.parametrize("task", [Task.GENERATE, Task.READ, Task.EMBED])
def test_an_unknown_token_id_is_refused_for_every_task(stage, task):
    rejected = refusal(stage, task=task, raw=RawPrompt(token_ids=(1, 300)))
    assert (rejected.code, rejected.param) == (ErrorCode.INVALID_VALUE, "prompt.1")


@pytest.mark.parametrize("task", [Task.GENERATE, Task.EMBED])
@pytest.mark.parametrize("raw", [RawPrompt("", param="input"), RawPrompt(token_ids=(), param="input")])
def test_an_empty_raw_prompt_is_refused_under_its_name(stage, task, raw):
    rejected = refusal(stage, task=task, raw=raw)
    assert (rejected.message, rejected.param) == ("input must not be empty", "input")


def test_a_raw_prompt_is_answered_and_returned_like_messages(stage):
    stage.submit(raw=RawPrompt("hello"), prompt=ALL)
    (sequence,) = stage.core.hear_sequences()
    assert sequence.prompt_ids == TOKENIZER.encode("hello")
    (events,) = stage.publication().values()
    assert events[0].payload.prompt_text == "hello"
    assert events[0].payload.prompt_tokens == ("hello",)
    assert events[0].payload.context_length is None
    stage.core.say(output(sequence, b"!", "length"))
    assert payloads(stage.events_to_end())[-1].usage == Usage(1, 0, 1)


def test_a_raw_prompt_beyond_the_context_names_its_field(stage):
    rejected = refusal(stage, raw=RawPrompt(token_ids=(65,) * 512, param="input"), stop=StopRules(max_tokens=8))
    assert (rejected.code, rejected.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "input")
    assert "However, you requested 520 tokens (512 in the prompt, 8 in the completion)." in rejected.message


# Embedding


def test_a_vector_is_published_before_the_end(embedding):
    embedding.submit(task=Task.EMBED, embed=EmbedOptions("last", 3))
    (sequence,) = embedding.core.hear_sequences()
    assert (sequence.embed, sequence.prompt_ids) == (EmbedOptions("last", 3, True), list(IDS))
    embedding.core.say(output(sequence, finish="embedded", vector=[0.6, 0.0, 0.8], num_cached=16, started_at=99.5))
    admitted, embedded, completed = payloads(embedding.events_to_end())
    assert (admitted.num_prompt_tokens, admitted.max_tokens) == (len(IDS), 0)
    assert embedded == Embedded((0.6, 0.0, 0.8))
    assert (completed.outcome, completed.usage) == (Outcome.FINISHED, Usage(len(IDS), 16))
    assert completed.timings.started_at == 99.5


def test_an_embedding_prompt_may_fill_the_context(embedding):
    embedding.submit(task=Task.EMBED, raw=RawPrompt(token_ids=(65,) * 512))
    embedding.core.hear_sequences()
    embedding.publication()
    rejected = refusal(embedding, run_id="long", task=Task.EMBED, raw=RawPrompt(token_ids=(65,) * 513, param="input"))
    assert rejected.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED
    assert "you requested 513 tokens (513 in the prompt)" in rejected.message


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (EmbedOptions(dimensions=5), "dimensions"),
        (EmbedOptions(dimensions=0), "dimensions"),
        (EmbedOptions("max"), "pooling"),
    ],
)
def test_embedding_options_beyond_the_model_are_refused(embedding, options, param):
    rejected = refusal(embedding, task=Task.EMBED, embed=options)
    assert (rejected.code, rejected.param) == (ErrorCode.INVALID_VALUE, param)
    if options.dimensions == 5:
        assert rejected.message == "dimensions must be from 1 to 4, the length of this model's vectors, got 5"


@pytest.mark.parametrize("vector", [None, [1.0, math.nan], [math.inf]])
def test_a_failed_step_or_a_non_finite_vector_fails_the_run(embedding, vector):
    embedding.submit(task=Task.EMBED)
    (sequence,) = embedding.core.hear_sequences()
    embedding.core.say(output(sequence, finish="embedded" if vector else "failed", vector=vector))
    _, failed = payloads(embedding.events_to_end())
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.FAILED


def test_an_aborted_run_ends_without_a_vector(embedding):
    embedding.submit(task=Task.EMBED)
    (sequence,) = embedding.core.hear_sequences()
    embedding.engine.abort("run", Outcome.STOPPED)
    embedding.core.say(output(sequence, finish="embedded", vector=[1.0]))
    _, completed = payloads(embedding.events_to_end())
    assert completed.outcome is Outcome.STOPPED


def test_a_resumed_run_starts_anew_unless_its_vector_is_logged(embedding):
    admitted = Event(0, 1, Admitted(len(IDS), 0, 0))
    embedding.submit("anew", task=Task.EMBED, resume=Resume((admitted,)))
    (sequence,) = embedding.core.hear_sequences()
    embedding.core.say(output(sequence, finish="embedded", vector=[1.0]))
    assert [type(payload) for payload in payloads(embedding.events_to_end("anew"))] == [Embedded, Completed]
    embedding.submit("over", task=Task.EMBED, resume=Resume((admitted, Event(1, 1, Embedded((1.0,))))))
    (completed,) = embedding.events_to_end("over")
    assert (completed.start, completed.payload.usage) == (2, Usage(len(IDS)))


def test_a_replacement_core_recomputes_a_vector(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit(task=Task.EMBED)
    (first,) = stage.core.hear_sequences()
    stage.core.die()
    (again,) = second.hear_sequences()
    assert again == first
    second.say(output(again, finish="embedded", vector=[1.0]))
    assert payloads(stage.events_to_end())[-1].outcome is Outcome.FINISHED


# No tokens

NONE = StopRules(max_tokens=0)
SCORES = [SampledLogprobs(-1.0, rank=1, token_id=token_id) for token_id in IDS[1:]]
ENDED = ChoiceFinished(0, FinishReason.LENGTH)


def test_with_max_tokens_0_the_prompt_is_scored_and_the_sampled_token_dropped(stage):
    stage.submit(stop=NONE, logprobs=LogprobOptions(True, 1, prompt=1))
    (sequence,) = stage.core.hear_sequences()
    assert (sequence.max_tokens, sequence.logprobs.prompt, sequence.logprobs.enabled) == (1, 1, False)
    stage.core.say(output(sequence, prompt_logprobs=SCORES[:5], num_cached=0, started_at=99.5))
    stage.core.say(output(sequence, b"x", "length", prompt_logprobs=SCORES[5:]))
    admitted, scored, ended, completed = payloads(stage.events_to_end())
    assert admitted.max_tokens == 0
    assert isinstance(scored, PromptScored)
    assert [entry[0].token_id for entry in scored.entries[1:]] == list(IDS[1:])
    assert ended == ENDED
    assert (completed.outcome, completed.usage) == (Outcome.FINISHED, Usage(len(IDS)))
    assert completed.timings.first_token_at is None


@pytest.mark.parametrize("changes", [{}, {"best_of": 3}, {"beam": BeamOptions()}], ids=str)
def test_choices_with_max_tokens_0_share_one_sequence(stage, changes):
    stage.submit(stop=NONE, num_choices=2, **changes)
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"x", "length"))
    _, *ends, completed = payloads(stage.events_to_end())
    assert ends == [ENDED, ChoiceFinished(1, FinishReason.LENGTH)]
    assert completed.usage == Usage(len(IDS))


def test_sampling_options_are_ignored_with_max_tokens_0(stage):
    stage.submit(
        stop=StopRules(max_tokens=0, ignore_eos=True),
        sampling=SamplingParams(allowed_token_ids=(5,), bad_words=("hi",)),
    )
    (sequence,) = stage.core.hear_sequences()
    assert (sequence.sampling, sequence.bad_word_ids, sequence.stop) == (
        SamplingParams(temperature=0.0, seed=0),
        [],
        StopRules(),
    )


@pytest.mark.parametrize(("finish", "outcome"), [("failed", Outcome.FAILED), ("aborted", Outcome.STOPPED)])
def test_a_prompt_that_is_not_fully_computed_gives_no_choices(stage, finish, outcome):
    stage.submit(stop=NONE, logprobs=LogprobOptions(prompt=0))
    (sequence,) = stage.core.hear_sequences()
    if finish == "aborted":
        stage.engine.abort("run", Outcome.STOPPED)
    stage.core.say(output(sequence, finish=finish))
    _, ending = payloads(stage.events_to_end())
    assert ending.outcome is outcome


@pytest.mark.parametrize("num_logged", [0, 1, 2, 3])
def test_a_resumed_run_with_max_tokens_0_publishes_only_unlogged_events(stage, num_logged):
    said = [PromptScored(((), *(() for _ in SCORES))), ENDED, ChoiceFinished(1, FinishReason.LENGTH)]
    logged = [Event(1 + place, 1, payload) for place, payload in enumerate(said[:num_logged])]
    resume = Resume((Event(0, 1, Admitted(len(IDS), 0, 7)), *logged))
    stage.submit(stop=NONE, num_choices=2, logprobs=LogprobOptions(prompt=0), resume=resume)
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(
        output(sequence, b"x", "length", prompt_logprobs=SCORES if sequence.logprobs.prompt is not None else None)
    )
    events = stage.events_to_end()
    assert [type(event.payload) for event in events] == [*map(type, said[num_logged:]), Completed]
    assert events[0].start == 1 + num_logged
