"""The engine through submit() and what it publishes, over a core that the test plays: order, ends, deaths, resumption."""

import dataclasses
import queue
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
    GenerationRequest,
    Outcome,
    Rejected,
    SamplingParams,
    StopRules,
    Usage,
)
from engine.api.errors import EngineUnavailable, ModelLoadError
from engine.config import EngineConfig
from engine.core_life import MAX_RESTARTS
from engine.engine import Engine, Resume
from engine.messages import AbortSequences, CoreFailed, CoreProgress, CoreStats, Heartbeat, QueryStats, SequenceOutput
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.tiny_tokenizer import CHATML, IM_END, tiny_tokenizer

STATS = CoreStats(1, 2, 3, 4, 5, 6, 7, 8, 9)


class Stage:
    """An engine over scripted cores, a clock that stands still, and what was published."""

    def __init__(self, folder, *cores, **config):
        self.now = 100.0
        self.cores = list(cores) or [ScriptedCore(READY)]
        self.core = self.cores[0]
        waiting = iter(self.cores)
        self._news = queue.SimpleQueue()
        config = EngineConfig(folder, "tiny", max_sequences=4, **config)
        self.engine = Engine(config, self._news.put, connect=lambda _: next(waiting), clock=lambda: self.now)

    def submit(self, run_id="run", text="hi", resume=None, **changes):
        request = GenerationRequest(run_id, "tiny", ({"role": "user", "content": text},), arrived_at=99.0)
        self.engine.submit(dataclasses.replace(request, **changes), resume)

    def news(self):
        """The next publication: run ids with their events."""
        return {run.run_id: list(run.events) for run in self._news.get(timeout=20)}

    def events_to_end(self, run_id="run"):
        events = []
        while not (events and events[-1].is_terminal):
            events += self.news().get(run_id, [])
        return events

    def has_no_news(self):
        return self._news.empty()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny_tokenizer().backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "chat_template.jinja").write_text(CHATML)
    return folder


@pytest.fixture
def make_stage(folder):
    stages = []

    def make(*cores, **config):
        stage = Stage(folder, *cores, **config)
        stages.append(stage)
        stage.engine.start()
        return stage

    yield make
    for stage in stages:
        for core in stage.cores:
            core.answers_aborts = True
        stage.engine.close()


@pytest.fixture
def stage(make_stage):
    return make_stage()


def output(sequence, token_ids=(), finish=None, **more):
    return SequenceOutput(sequence.seq_id, list(token_ids), finish=finish, **more)


def check_positions(events):
    for before, after in zip(events, events[1:], strict=False):
        assert before.start + before.count == after.start
    return events


def payloads(events):
    return [event.payload for event in check_positions(events)]


def test_a_run_from_admission_to_its_account(stage):
    stage.submit(stop=StopRules(max_tokens=5))
    (sequence,) = stage.core.hear_sequences()
    prompt = tiny_tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert (sequence.prompt_ids, sequence.max_tokens, sequence.stop_ids) == (prompt, 5, [IM_END])
    stage.core.say(output(sequence, b"a", num_cached=3, started_at=99.5))
    events = [*stage.news()["run"], *stage.news()["run"]]
    stage.now = 101.0
    stage.core.say(output(sequence, [IM_END], "stop"))
    admitted, *rest = payloads([*events, *stage.events_to_end()])
    assert admitted == Admitted(len(prompt), 5, sequence.sampling.seed)
    assert rest[:3] == [Delta(0, (97,), "a"), Delta(0, (IM_END,), ""), ChoiceFinished(0, FinishReason.STOP)]
    assert (rest[3].outcome, rest[3].usage) == (Outcome.FINISHED, Usage(len(prompt), 3, 2))
    timings = rest[3].timings
    assert (timings.arrived_at, timings.started_at, timings.first_token_at, timings.ended_at) == (99.0, 99.5, 100.0, 101.0)


def test_one_publication_per_step_holds_the_news_of_all_runs(stage):
    sequences = []
    for run_id in "ab":
        stage.submit(run_id)
        sequences += stage.core.hear_sequences()
        stage.news()
    stage.core.say(*(output(sequence, b"x") for sequence in sequences))
    assert stage.news() == {"a": [Event(1, 1, Delta(0, (120,), "x"))], "b": [Event(1, 1, Delta(0, (120,), "x"))]}


def test_choices_share_one_counter_and_get_seeds_in_a_row(stage):
    stage.submit(num_choices=3, sampling=SamplingParams(seed=7))
    sequences = stage.core.hear_sequences(3)
    assert [sequence.sampling.seed for sequence in sequences] == [7, 8, 9]
    stage.core.say(*(output(sequence, b"ab", "length", num_cached=cached) for sequence, cached in zip(sequences, (0, 16, 16), strict=True)))
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
def test_an_abort_ends_the_run_once_the_core_has_let_go(stage, outcome):
    stage.submit(num_choices=2)
    first, second = stage.core.hear_sequences(2)
    stage.core.say(output(first, b"a"), output(second, b"b"))
    stage.engine.abort("run", outcome)
    stage.engine.abort("run", Outcome.TIMED_OUT)  # the first word counts
    assert stage.core.answer_abort() == [first.seq_id, second.seq_id]
    events = payloads(stage.events_to_end())
    assert (events[-1].outcome, events[-1].usage.completion_tokens) == (outcome, 2)
    assert not any(isinstance(event, ChoiceFinished) for event in events)
    stage.engine.abort("run", outcome)
    stage.engine.abort("unknown", outcome)
    assert stage.core.has_heard_all()
    assert stage.has_no_news()


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
    stage.core.say(message=Heartbeat(0.0))
    stage.core.say(output(late, b"a"), output(other, b"a"))
    while "late" not in (news := stage.news()) or len(news) < 2:
        pass
    stage.now = 105.0
    stage.core.say(message=Heartbeat(0.0))
    assert stage.core.answer_abort() == [late.seq_id]
    (completed,) = stage.events_to_end("late")
    assert (completed.payload.outcome, completed.payload.usage.completion_tokens) == (Outcome.TIMED_OUT, 1)


def test_a_sequence_that_fails_takes_its_run_with_it_and_nothing_else(stage):
    stage.submit("bad", num_choices=2)
    stage.submit("good")
    first, second, good = stage.core.hear_sequences(3)
    stage.core.say(output(first, b"a"), output(second, finish="failed"), output(good, b"x"))
    assert stage.core.hear(AbortSequences).seq_ids == [first.seq_id]
    stage.core.say(output(good, b"y", "length"))
    events = {"bad": [], "good": []}
    while not all(found and found[-1].is_terminal for found in events.values()):
        for run_id, found in stage.news().items():
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
        for run_id, found in stage.news().items():
            events[run_id] += found
    assert isinstance(events["bad"][-1].payload, Failed)
    assert isinstance(events["good"][-1].payload, Completed)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"text": "x" * 5000}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages"),
        ({"text": "x" * 600}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages"),
        ({"stop": StopRules(stop_token_ids=(300,))}, ErrorCode.INVALID_VALUE, "stop_token_ids"),
        ({"stop": StopRules(max_tokens=513)}, ErrorCode.INVALID_VALUE, "max_tokens"),
        ({"messages": ({"role": "user", "content": {"a": 1}}, {"content": 1})}, ErrorCode.INVALID_VALUE, "messages"),
    ],
)
def test_what_cannot_be_served_is_rejected_before_the_core_hears_of_it(stage, changes, code, param):
    stage.submit(**changes)
    ((event,),) = stage.news().values()
    assert (event.start, event.count) == (0, 1)
    assert isinstance(event.payload, Rejected)
    assert (event.payload.code, event.payload.param) == (code, param)
    assert stage.core.has_heard_all()


def test_the_queue_is_bounded(make_stage):
    stage = make_stage(max_waiting=2)
    for index in range(6):
        stage.submit(f"run-{index}")
        assert isinstance(next(iter(stage.news().values()))[0].payload, Admitted)
    stage.submit("one too many", num_choices=1)
    ((event,),) = stage.news().values()
    assert event.payload.code == ErrorCode.OVERLOADED


def test_a_token_that_the_model_lacks_never_reaches_the_core(make_stage):
    stage = make_stage(ScriptedCore(dataclasses.replace(READY, logits_width=IM_END)))
    stage.submit()
    ((event,),) = stage.news().values()
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


def test_load_progress_is_handed_on_and_a_failure_names_its_reason(folder):
    stage = Stage(folder, ScriptedCore(CoreProgress("loading weights", 0.5), CoreFailed("model.gguf is truncated", "detail")))
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


# The death of the core


def test_a_run_goes_on_in_the_next_core_without_gap_or_repeat(make_stage):
    """The new core counts as alive at once: with the old one's last heartbeat the worker looked dead after a long load."""
    second = ScriptedCore()
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit(num_choices=2, sampling=SamplingParams(seed=5))
    first_choice, second_choice = stage.core.hear_sequences(2)
    stage.core.say(output(first_choice, b"a", num_cached=0), output(second_choice, b"x", "length"))
    stage.core.die()
    stage.now = 150.0  # as long as the second core takes to load
    second.say(message=READY)
    (again,) = second.hear_sequences()
    assert stage.engine.heartbeat_at == 150.0
    assert (again.prompt_ids, again.output_ids) == (first_choice.prompt_ids, [*b"a"])
    assert (again.sampling.seed, again.max_tokens) == (5, first_choice.max_tokens)
    second.say(output(again, b"b", "length", num_cached=16))
    events = payloads(stage.events_to_end())
    assert [event.text for event in events if isinstance(event, Delta) and event.choice == 0] == ["a", "b"]
    assert events[-1].usage == Usage(len(again.prompt_ids), 0, 3)


def test_a_run_that_was_being_ended_is_ended_by_the_death_of_the_core(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit()
    stage.core.hear_sequences()
    stage.engine.abort("run", Outcome.STOPPED)
    stage.core.die()
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.STOPPED
    stage.submit("next")
    assert second.hear_sequences()


def test_a_core_that_reports_its_failure_is_replaced(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit()
    stage.core.hear_sequences()
    stage.core.say(message=CoreFailed("broken", "detail"))
    assert second.hear_sequences()


def test_a_core_that_dies_too_often_fails_its_runs_and_the_engine(make_stage):
    cores = [ScriptedCore(READY) for _ in range(MAX_RESTARTS + 1)]
    stage = make_stage(*cores)
    stage.engine._starter._closing.wait = lambda delay_s: False  # no back-off
    stage.submit()
    for core in cores:
        core.hear_sequences()
        core.die()
    events = payloads(stage.events_to_end())
    assert (events[-1].code, events[-1].outcome) == (ErrorCode.ENGINE_ERROR, Outcome.FAILED)
    with pytest.raises(EngineUnavailable):
        stage.submit("next")
    assert stage.engine.stats().state == "failed"


def test_closing_ends_a_core_that_is_still_loading_and_the_runs_that_wait_for_it(make_stage):
    """Such a core was left alone: it loaded on behind a closed engine, and its runs never ended."""
    loading, is_awaited = ScriptedCore(), threading.Event()
    receive = loading.receive
    loading.receive = lambda: is_awaited.set() or receive()
    stage = make_stage(ScriptedCore(READY), loading)
    stage.submit()
    stage.core.hear_sequences()
    stage.engine.abort("run", Outcome.STOPPED)
    stage.core.die()
    assert is_awaited.wait(20)
    stage.engine._changed.wait_for = lambda predicate, timeout: predicate()  # no drain
    stage.engine.close()
    assert loading._is_dead
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.STOPPED
    assert not stage.engine._receiver.is_alive()


def test_a_run_that_is_being_admitted_while_the_last_core_dies_ends_after_its_admission(make_stage, monkeypatch):
    """Its end was published first: the receiver did not wait for the thread that publishes the admission."""
    monkeypatch.setattr("engine.core_life.MAX_RESTARTS", 0)
    stage = make_stage()
    publish = stage.engine._publish

    def publish_when_the_core_is_gone(news):
        if isinstance(news[0].events[0].payload, Admitted):
            stage.core.die()
            stage.engine._receiver.join(20)
        publish(news)

    stage.engine._publish = publish_when_the_core_is_gone
    stage.submit()
    assert [type(payload) for payload in payloads(stage.events_to_end())] == [Admitted, Failed]
    assert stage.engine.stats().num_runs == 0


# Resumption by another worker


def interrupted(events, keep):
    """The first events of a run, as a log that broke off."""
    return Resume(tuple(events[:keep]))


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_resumed_run_continues_at_the_next_position(make_stage, keep):
    stop = StopRules(stop=("bad",), max_tokens=20)
    first = make_stage()
    first.submit(stop=stop)
    (sequence,) = first.core.hear_sequences()
    for text in (b"a b", b"a", b"x bad"):
        first.core.say(output(sequence, text))
    events = first.events_to_end()
    texts = "".join(getattr(event.payload, "text", "") for event in events)
    assert texts == "a bax "

    second = make_stage()
    resume = interrupted(events, keep)
    second.submit(stop=stop, resume=resume)
    (again,) = second.core.hear_sequences()
    if keep:
        assert again.sampling.seed == sequence.sampling.seed
    logged = b"a b" * (keep > 1) + b"a" * (keep > 2)
    assert bytes(again.output_ids) == logged
    for token in b"a bax bad"[len(logged) :]:
        second.core.say(output(again, [token]))
    resumed = second.events_to_end()
    check_positions([*resume.events, *resumed])
    assert "".join(getattr(event.payload, "text", "") for event in [*resume.events, *resumed]) == texts
    assert resumed[-1].payload.usage == events[-1].payload.usage
    assert sum(isinstance(event.payload, Admitted) for event in [*resume.events, *resumed]) == 1


@pytest.mark.parametrize("finish", ["length", "stop"])
def test_a_run_whose_last_words_were_not_logged_ends_when_it_is_resumed(make_stage, finish):
    first = make_stage()
    first.submit(stop=StopRules(max_tokens=2))
    (sequence,) = first.core.hear_sequences()
    first.core.say(output(sequence, [97, 98] if finish == "length" else [IM_END], finish))
    events = first.events_to_end()
    second = make_stage()
    second.submit(stop=StopRules(max_tokens=2), resume=interrupted(events, 2))
    resumed = second.events_to_end()
    assert [event.payload for event in resumed][:-1] == [event.payload for event in events][2:-1]
    assert resumed[-1].payload.usage.completion_tokens == events[-1].payload.usage.completion_tokens
    check_positions([*events[:2], *resumed])
    assert second.core.has_heard_all()


def test_a_resumed_run_may_start_behind_positions_that_others_took(stage):
    stage.submit(resume=Resume((), next_position=7))
    ((event,),) = stage.news().values()
    assert (event.start, type(event.payload)) == (7, Admitted)


def test_a_resumed_run_that_cannot_be_served_any_more_fails(stage):
    """What the earlier attempt has generated is on its account, also when nothing follows."""
    logged = (Event(0, 1, Admitted(1, 2, 3)), Event(1, 1, Delta(0, (97,), "a")))
    stage.submit(text="x" * 5000, resume=Resume(logged))
    ((event,),) = stage.news().values()
    assert (event.start, type(event.payload)) == (2, Failed)
    assert event.payload.usage == Usage(1, 0, 1)


# Closing


def test_closing_waits_for_live_runs_up_to_its_limit(make_stage):
    stage = make_stage()
    stage.submit()
    (sequence,) = stage.core.hear_sequences()
    closer = threading.Thread(target=stage.engine.close, kwargs={"drain_s": 60.0})
    closer.start()
    stage.core.say(output(sequence, b"a", "length"))
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.FINISHED
    closer.join(20)
    assert stage.engine.stats().state == "closed"


def test_what_is_left_at_the_end_of_draining_is_lost_and_says_so(stage):
    stage.submit()
    stage.core.hear_sequences()
    closer = threading.Thread(target=stage.engine.close)
    closer.start()
    stage.core.answer_abort()
    failed = payloads(stage.events_to_end())[-1]
    assert (failed.code, failed.outcome) == (ErrorCode.WORKER_LOST, Outcome.WORKER_LOST)
    closer.join(20)
    with pytest.raises(EngineUnavailable):
        stage.submit("next")
