"""Overlapped steps give the same answers as sequential steps, for any mix of requests."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.api.errors import EngineFailure
from engine.decoding.costs import StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.execution.overlap import OverlappedSteps
from engine.execution.prompts import PromptResults
from engine.messages import AbortSequences, AddSequence, AnnounceSteps, StepResult, StepStarted
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core
from tests.examples import examples

VOCAB_SIZE = 640
END = 3


class FedRunner:
    """A runner whose logits depend on the last token and its position alone. It counts the fed steps."""

    def __init__(self, scale=3.0, fatal_at=None, period=1000, error=None):
        """`period`: logits repeat after so many positions, and with them the text. `error`: that of step `fatal_at`."""
        self.num_fed = self.num_steps = 0
        self._scale = scale
        self._fatal_at = fatal_at
        self._error = error or RuntimeError("out of memory")
        self._period = period

    def accepts_device_tokens(self, plan):
        return all(chunk.samples and chunk.num_positions == 1 for chunk in plan.chunks)

    def forward(self, plan, fed=None):
        self.num_steps += 1
        self.num_fed += fed is not None
        if self.num_steps == self._fatal_at:
            raise self._error
        chunks = [chunk for chunk in plan.chunks if chunk.samples]
        if fed is not None:
            tokens = fed.token_ids[torch.tensor(fed.rows)].tolist()
        else:
            tokens = [chunk.sequence.token_slice(chunk.start, chunk.start + chunk.num_tokens)[-1] for chunk in chunks]
        rows = [
            self._row(known, chunk.start + chunk.num_tokens + place)
            for token, chunk in zip(tokens, chunks, strict=True)
            for place, known in enumerate((token, *chunk.draft_ids))
        ]
        return torch.stack(rows) if rows else torch.empty(0, VOCAB_SIZE)

    def _row(self, token, position):
        row = (
            torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(1000 * (position % self._period) + token))
            * self._scale
        )
        row[END] += 2 * self._scale
        return row

    def prompt_results(self, plan):
        return PromptResults()


class Loop:
    """A core over the scripted runner; `play` adds and aborts at given steps."""

    def __init__(self, is_ahead, num_blocks=40, max_num_seqs=4, drafts=False, **runner):
        self.channel = QueueChannel()
        self.runner = FedRunner(**runner)
        self.num_blocks = num_blocks
        drafter = LookupDrafter(StepCosts.flat(), prompt_lookup=True) if drafts else None
        self.scheduler = Scheduler(num_blocks, 4, 16, max_num_seqs, 100, True, drafter=drafter)
        sampler = Sampler(VOCAB_SIZE, "cpu", syncs=not is_ahead)
        ahead = OverlappedSteps(self.scheduler, self.runner, sampler) if is_ahead else None
        self.core = make_core(self.scheduler, self.runner, sampler, self.channel, drafter=drafter, overlap=ahead)

    def play(self, requests, aborts=()):
        """Play `requests`, (step, AddSequence), and `aborts`, (step, seq_id).

        Return tokens, finish and log-probabilities of each sequence.
        """
        answers = {message.seq_id: ([], [], []) for _, message in requests}
        last = max([0, *(step for step, _ in requests), *(step for step, _ in aborts)])
        step = 0
        while True:
            messages = [message for when, message in requests if when == step]
            messages += [AbortSequences([seq_id]) for when, seq_id in aborts if when == step]
            assert self.core.handle_messages(messages)
            was_busy = self.core.step()
            self._collect(answers)
            assert self.scheduler.check_integrity() == ""
            step += 1
            if not was_busy and step > last:
                break
        assert self.scheduler.stats().num_free_blocks == self.num_blocks
        return answers

    def _collect(self, answers):
        while not self.channel.outbox.empty():
            message = self.channel.outbox.get()
            assert isinstance(message, StepResult)
            for output in message.outputs:
                tokens, finishes, logprobs = answers[output.seq_id]
                assert not finishes, "an update of a sequence that has ended"
                tokens += output.token_ids
                logprobs += output.logprobs or []
                finishes += [output.finish] if output.finish else []


def request(seq_id, prompt_ids=(1, 2, 5), max_tokens=20, stop_ids=(END,), sampling=None, **more):
    sampling = sampling or SamplingParams(temperature=0.0, seed=seq_id)
    more = {"stop": StopRules(), "logprobs": LogprobOptions()} | more
    return AddSequence(
        seq_id,
        list(prompt_ids),
        [],
        sampling,
        stop_ids=list(stop_ids),
        max_tokens=max_tokens,
        cache_root=b"root",
        priority=0,
        **more,
    )


sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 5]),
    top_p=st.sampled_from([1.0, 0.8, 0.99]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.0, 1.4]),
    seed=st.integers(0, 2**40),
)
requests_of_one = st.tuples(
    st.integers(0, 12),
    st.builds(
        request,
        seq_id=st.just(0),
        prompt_ids=st.lists(st.integers(4, 9), min_size=1, max_size=20),
        max_tokens=st.integers(1, 15),
        sampling=sampling_params,
        stop_ids=st.sampled_from([(END,), ()]),
        stop=st.sampled_from([StopRules(), StopRules(min_tokens=4)]),
        logprobs=st.sampled_from([LogprobOptions(), LogprobOptions(), LogprobOptions(enabled=True, top=2)]),
    ),
)
crowds = st.lists(requests_of_one, min_size=1, max_size=7).map(
    lambda crowd: [(when, dataclasses.replace(message, seq_id=number)) for number, (when, message) in enumerate(crowd)]
)


@given(crowds, st.sampled_from([16, 40]), st.sampled_from([3.0, 0.01]), st.integers(1, 4))
@examples(30)
def test_overlapped_steps_give_the_same_answers_as_sequential_ones(crowd, num_blocks, scale, max_num_seqs):
    plain, ahead = (Loop(is_ahead, num_blocks, max_num_seqs, scale=scale).play(crowd) for is_ahead in (False, True))
    assert ahead == plain


@given(crowds, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=4))
@examples(25)
def test_an_abort_frees_its_sequences_and_leaves_the_others_alone(crowd, aborts):
    plain = Loop(False).play(crowd)
    ahead = Loop(True).play(crowd, aborts)
    for seq_id, (tokens, finishes, _) in ahead.items():
        if finishes == ["aborted"]:
            assert tokens == plain[seq_id][0][: len(tokens)]
        else:
            assert (tokens, finishes) == plain[seq_id][:2]


def test_steady_decodes_use_device_tokens():
    loop = Loop(True)
    loop.play([(0, request(number, max_tokens=12, stop_ids=())) for number in range(3)])
    assert loop.runner.num_fed == loop.runner.num_steps - 2, "the prompts and the first step of decodes are not"


def test_steps_stay_overlapped_while_other_sequences_wait():
    loop = Loop(True, max_num_seqs=2)
    loop.play([(0, request(number, max_tokens=10, stop_ids=())) for number in range(6)])
    assert loop.runner.num_fed > loop.runner.num_steps // 2


@given(crowds)
@examples(20)
def test_drafts_and_steps_ahead_take_turns(crowd):
    plain, ahead = (Loop(is_ahead, drafts=is_ahead, period=3).play(crowd) for is_ahead in (False, True))
    assert ahead == plain


def test_repetitive_text_is_drafted_while_other_text_runs_ahead():
    steps = {}
    for period in (3, 1000):
        loop = Loop(True, drafts=True, period=period)
        loop.play([(0, request(1, max_tokens=60, stop_ids=()))])
        steps[period] = loop.runner.num_steps, loop.runner.num_fed
    assert steps[3][0] < 50
    assert steps[1000][1] > 40


def test_steps_whose_draws_depend_on_the_output_are_never_overlapped():
    loop = Loop(True)
    loop.play(
        [
            (0, request(1, sampling=SamplingParams(seed=1, presence_penalty=1.0), stop_ids=())),
            (0, request(2, stop_ids=())),
        ]
    )
    assert loop.runner.num_fed == 0


@pytest.mark.parametrize("fatal_at", [1, 3, 6])
def test_a_step_that_raises_fails_its_sequences_only(fatal_at):
    loop = Loop(True, fatal_at=fatal_at)
    answers = loop.play(
        [(0, request(1, stop_ids=())), (0, request(2, stop_ids=())), (30, request(3, max_tokens=4, stop_ids=()))]
    )
    assert [answers[seq_id][1] for seq_id in (1, 2, 3)] == [["failed"], ["failed"], ["length"]]
    assert len(answers[3][0]) == 4


@pytest.mark.parametrize("fatal_at", [1, 3])
def test_a_step_that_loses_the_device_ends_the_core(fatal_at):
    loop = Loop(True, fatal_at=fatal_at, error=torch.AcceleratorError("CUDA error: unspecified launch failure"))
    with pytest.raises(EngineFailure, match="the device has failed"):
        loop.play([(0, request(1, stop_ids=()))])
    while not loop.channel.outbox.empty():
        assert all(output.finish is None for output in loop.channel.outbox.get().outputs)


def test_a_step_that_was_begun_ahead_is_announced_while_it_is_computed():
    """A result ends earlier announcements; without a new one a core dying in a step ahead would blame no run."""
    loop = Loop(True)
    loop.core.handle_messages(
        [AnnounceSteps(), request(1, max_tokens=6, stop_ids=()), request(2, max_tokens=9, stop_ids=())]
    )
    while loop.core.step():
        pass
    announced: list[int] = []
    num_results = 0
    while not loop.channel.outbox.empty():
        message = loop.channel.outbox.get()
        if isinstance(message, StepStarted):
            announced = message.seq_ids
            continue
        assert {output.seq_id for output in message.outputs} <= set(announced)
        announced = []
        num_results += 1
    assert loop.runner.num_fed
    assert num_results > 6
