"""The engine through submit() and its publications, over a scripted core."""

import dataclasses
import threading

import pytest

from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    ErrorCode,
    Event,
    Failed,
    FinishReason,
    Outcome,
    Rejected,
    SamplingParams,
    StopRules,
    Usage,
)
from engine.api.errors import EngineUnavailable, ModelLoadError
from engine.messages import AbortSequences, CoreFailed, CoreProgress, CoreStats, Heartbeat, QueryStats
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import Stage, output, payloads
from tests.engine.tiny_tokenizer import IM_END, tiny_tokenizer

STATS = CoreStats(1, 2, 3, 4, 5, 6, 7, 8)


def test_a_run_publishes_admission_deltas_and_usage(stage):
    stage.submit(stop=StopRules(max_tokens=5))
    (sequence,) = stage.core.hear_sequences()
    prompt = tiny_tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert (sequence.prompt_ids, sequence.max_tokens, sequence.stop_ids) == (prompt, 5, [IM_END])
    stage.core.say(output(sequence, b"a", num_cached=3, started_at=99.5))
    events = [*stage.publication()["run"], *stage.publication()["run"]]
    stage.now = 101.0
    stage.core.say(output(sequence, [IM_END], "stop"))
    admitted, *rest = payloads([*events, *stage.events_to_end()])
    assert admitted == Admitted(len(prompt), 5, sequence.sampling.seed)
    assert rest[:3] == [Delta(0, (97,), "a"), Delta(0, (IM_END,), ""), ChoiceFinished(0, FinishReason.STOP)]
    assert (rest[3].outcome, rest[3].usage) == (Outcome.FINISHED, Usage(len(prompt), 3, 2))
    timings = rest[3].timings
    assert (timings.arrived_at, timings.started_at, timings.first_token_at, timings.ended_at) == (
        99.0,
        99.5,
        100.0,
        101.0,
    )


def test_one_publication_per_step_holds_the_events_of_all_runs(stage):
    sequences = []
    for run_id in "ab":
        stage.submit(run_id)
        sequences += stage.core.hear_sequences()
        stage.publication()
    stage.core.say(*(output(sequence, b"x") for sequence in sequences))
    assert stage.publication() == {"a": [Event(1, 1, Delta(0, (120,), "x"))], "b": [Event(1, 1, Delta(0, (120,), "x"))]}


def test_a_drawn_seed_can_be_sent_back_by_a_browser_whose_numbers_are_exact_below_2_to_the_53(stage, monkeypatch):
    monkeypatch.setattr("secrets.randbits", lambda bits: 2**bits - 1)
    stage.submit(num_choices=4)
    assert all(sequence.sampling.seed < 2**53 for sequence in stage.core.hear_sequences(4))


def test_choices_share_one_counter_and_get_seeds_in_a_row(stage):
    stage.submit(num_choices=3, sampling=SamplingParams(seed=7))
    sequences = stage.core.hear_sequences(3)
    assert [sequence.sampling.seed for sequence in sequences] == [7, 8, 9]
    stage.core.say(
        *(
            output(sequence, b"ab", "length", num_cached=cached)
            for sequence, cached in zip(sequences, (0, 16, 16), strict=True)
        )
    )
    events = payloads(stage.events_to_end())
    assert [event.choice for event in events if isinstance(event, Delta)] == [0, 1, 2]
    assert events[-1].usage == Usage(len(sequences[0].prompt_ids), 0, 6)


def test_a_stop_string_ends_the_choice_here_and_the_sequence_in_the_core(stage):
    stage.submit(num_choices=2, stop=StopRules(stop=("ba",)))
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, b"abac"), output(second, b"x"))
    assert stage.core.hear(AbortSequences).seq_ids == [first.seq_id]
    stage.core.say(output(first, b"d"), output(second, b"y"))  # the core was a step ahead
    stage.core.say(output(first, finish="aborted"), output(second, b"z", "length"))
    events = payloads(stage.events_to_end())
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "x", "y", "z"]
    assert events[-1].usage.completion_tokens == 3 + 3
    assert ChoiceFinished(0, FinishReason.STOP, "ba") in events


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.DISCONNECTED])
def test_an_abort_ends_the_run_once_the_core_has_confirmed(stage, outcome):
    stage.submit(num_choices=2)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, b"a"), output(second, b"b"))
    stage.engine.abort("run", outcome)
    stage.engine.abort("run", Outcome.TIMED_OUT)  # the first outcome counts
    assert stage.core.answer_abort() == [first.seq_id, second.seq_id]
    events = payloads(stage.events_to_end())
    assert (events[-1].outcome, events[-1].usage.completion_tokens) == (outcome, 2)
    assert not any(isinstance(event, ChoiceFinished) for event in events)
    stage.engine.abort("run", outcome)
    stage.engine.abort("unknown", outcome)
    assert stage.core.has_heard_all()
    assert stage.has_no_publication()


def test_a_run_that_finishes_before_its_abort_arrives_has_finished_choices(stage):
    stage.submit()
    (sequence,) = stage.core.hear_sequences()
    stage.engine.abort("run", Outcome.DISCONNECTED)
    stage.core.say(output(sequence, b"a", "length"))
    events = payloads(stage.events_to_end())
    assert ChoiceFinished(0, FinishReason.LENGTH) in events
    assert events[-1].outcome == Outcome.DISCONNECTED


def test_a_deadline_that_has_passed_ends_the_run(stage):
    stage.submit("late", deadline_at=105.0)
    stage.submit("other", deadline_at=200.0)
    late, other = stage.core.hear_sequences(2)
    stage.core.say(message=Heartbeat())
    stage.core.say(output(late, b"a"), output(other, b"a"))
    while "late" not in (publication := stage.publication()) or len(publication) < 2:
        pass
    stage.now = 105.0
    stage.core.say(message=Heartbeat())
    assert stage.core.answer_abort() == [late.seq_id]
    (completed,) = stage.events_to_end("late")
    assert (completed.payload.outcome, completed.payload.usage.completion_tokens) == (Outcome.TIMED_OUT, 1)


def test_a_failed_sequence_fails_its_own_run_only(stage):
    stage.submit("bad", num_choices=2)
    stage.submit("good")
    first, second, good = stage.core.hear_sequences(3)
    stage.core.say(output(first, b"a"), output(second, finish="failed"), output(good, b"x"))
    assert stage.core.hear(AbortSequences).seq_ids == [first.seq_id]
    stage.core.say(output(good, b"y", "length"))
    events = {"bad": [], "good": []}
    while not all(found and found[-1].is_terminal for found in events.values()):
        for run_id, found in stage.publication().items():
            events[run_id] += found
    failed = payloads(events["bad"])[-1]
    assert (failed.code, failed.outcome, failed.usage.completion_tokens) == (ErrorCode.ENGINE_ERROR, Outcome.FAILED, 1)
    assert payloads(events["good"])[-1].outcome == Outcome.FINISHED


def test_output_that_cannot_be_processed_fails_one_run_only(stage):
    stage.submit("bad")
    stage.submit("good")
    bad, good = stage.core.hear_sequences(2)
    stage.core.say(output(bad, ["no id"]), output(good, b"x", "length"))
    assert stage.core.hear(AbortSequences).seq_ids == [bad.seq_id]
    events = {"bad": [], "good": []}
    while not all(found and found[-1].is_terminal for found in events.values()):
        for run_id, found in stage.publication().items():
            events[run_id] += found
    assert isinstance(events["bad"][-1].payload, Failed)
    assert isinstance(events["good"][-1].payload, Completed)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"text": "x" * 5000}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages"),
        ({"text": "x" * 600}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages"),
        ({"stop": StopRules(stop_token_ids=(300,))}, ErrorCode.INVALID_VALUE, "stop_token_ids"),
        (
            {"messages": ({"role": "user", "content": {"a": 1}}, {"content": 1})},
            ErrorCode.INVALID_VALUE,
            "messages.1.role",
        ),
    ],
)
def test_invalid_requests_are_rejected_before_the_core_is_involved(stage, changes, code, param):
    stage.submit(**changes)
    ((event,),) = stage.publication().values()
    assert (event.start, event.count) == (0, 1)
    assert isinstance(event.payload, Rejected)
    assert (event.payload.code, event.payload.param) == (code, param)
    assert stage.core.has_heard_all()


def test_the_queue_is_bounded(make_stage):
    stage = make_stage(max_waiting=2)
    for index in range(6):
        stage.submit(f"run-{index}")
        assert isinstance(next(iter(stage.publication().values()))[0].payload, Admitted)
    stage.submit("one too many", num_choices=1)
    ((event,),) = stage.publication().values()
    assert event.payload.code == ErrorCode.OVERLOADED


def test_a_queue_filled_by_one_tenant_admits_others(make_stage):
    stage = make_stage(max_waiting=2)
    said = {}
    for index, tenant in enumerate(["greedy"] * 7 + ["witness"]):
        stage.submit(f"run-{index}", tenant=tenant)
        said |= stage.publication()
    assert said["run-6"][0].payload.code == ErrorCode.OVERLOADED
    assert isinstance(said["run-7"][0].payload, Admitted)
    assert [sequence.tenant for sequence in stage.core.hear_sequences(7)] == ["greedy"] * 6 + ["witness"]


def test_a_token_that_the_model_lacks_never_reaches_the_core(make_stage):
    stage = make_stage(ScriptedCore(dataclasses.replace(READY, logits_width=IM_END)))
    stage.submit()
    ((event,),) = stage.publication().values()
    assert (type(event.payload), event.payload.param) == (Rejected, "messages")
    assert stage.core.has_heard_all()


def test_a_second_submission_of_a_live_run_is_refused(stage):
    stage.submit()
    stage.core.hear_sequences()
    with pytest.raises(EngineUnavailable):
        stage.submit()


def test_ignoring_the_end_token_leaves_the_requests_own_stop_ids(stage):
    stage.submit(stop=StopRules(ignore_eos=True, stop_token_ids=(5, 5)))
    assert stage.core.hear_sequences()[0].stop_ids == [5]


def test_prefixes_are_shared_within_one_tenant_and_salt_only(stage):
    roots = []
    for index, (tenant, salt) in enumerate([("a", ""), ("a", ""), ("a", "b"), ("ab", ""), ("", "ab"), ("b", "")]):
        stage.submit(f"run-{index}", tenant=tenant, cache_salt=salt)
        roots.append(stage.core.hear_sequences()[0].cache_root)
        if index == 3:
            for sequence_index in range(4):
                stage.engine.abort(f"run-{sequence_index}", Outcome.STOPPED)
                stage.core.answer_abort()
    assert roots[0] == roots[1]
    assert len(set(roots)) == 5


def test_load_progress_is_reported_and_a_failure_has_its_reason(folder):
    stage = Stage(
        folder, ScriptedCore(CoreProgress("loading weights", 0.5), CoreFailed("model.gguf is truncated", "detail"))
    )
    heard = []
    with pytest.raises(EngineUnavailable) as unavailable:
        stage.submit()
    assert unavailable.value.code == ErrorCode.MODEL_LOADING
    with pytest.raises(ModelLoadError, match=r"model\.gguf is truncated"):
        stage.engine.start(lambda *phase: heard.append(phase))
    assert heard == [("loading weights", 0.5)]
    with pytest.raises(EngineUnavailable):
        stage.submit()
    assert stage.engine.stats().state == "failed"
    stage.engine.close()


@pytest.mark.parametrize("content", ['{"model": {"type": "Invented"}}', None])
def test_a_tokenizer_that_is_not_served_is_refused_before_the_core_may_read_the_model(tmp_path, content):
    """The core had read weights by then."""
    (tmp_path / ("tekken.json" if content is None else "tokenizer.json")).write_text(content or "{}")
    core = ScriptedCore()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        Stage(tmp_path, core).engine.start()
    assert not core.may_load


def test_a_core_that_dies_while_loading_is_a_failed_load(folder):
    core = ScriptedCore()
    core.die()
    with pytest.raises(ModelLoadError):
        Stage(folder, core).engine.start()


def test_statistics_come_from_the_core(stage):
    results = []
    asker = threading.Thread(target=lambda: results.append(stage.engine.stats(check_integrity=True)))
    asker.start()
    assert stage.core.hear(QueryStats) == QueryStats(check_integrity=True)
    stage.core.say(message=STATS)
    asker.join(20)
    assert results[0].core == STATS
    assert (results[0].state, results[0].max_model_len) == ("ready", 512)
