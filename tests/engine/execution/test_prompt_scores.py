"""Prompt log-probabilities equal those of transformers in float32: in chunks, in a crowd, preempted, cached."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.execution.prompts import SLICE_ROWS
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from engine.messages import AddSequence, SampledLogprobs
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core
from tests.engine.random_model import SIZES, random_model

VOCAB_SIZE = SIZES["vocab_size"]
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small random Llama, in our runner and in transformers."""
    oracle = random_model(seed=6, spread=0.3)  # peaked distributions, so that ranks mean something
    folder = tmp_path_factory.mktemp("llama")
    oracle.save_pretrained(folder)
    options = EngineConfig(
        folder, "tiny", weights="float32", max_num_batched_tokens=64, max_num_seqs=4, kv_cache_bytes=1 << 22
    )
    return ModelRunner(load_model(folder, weights="float32"), options), oracle


class Stage:
    """The step loop over the real runner, with as many blocks of 16 as the test wants."""

    def __init__(self, model, max_num_batched_tokens=24, num_blocks=24):
        self.runner, self.oracle = model
        self.channel = QueueChannel()
        self.scheduler = Scheduler(num_blocks, 16, max_num_batched_tokens, 4, 100, prefix_caching=True)
        self.core = make_core(self.scheduler, self.runner, Sampler(VOCAB_SIZE, "cpu"), self.channel, clock=lambda: 1.0)
        self.outputs = []

    def add(self, seq_id, prompt_ids, prompt=0, max_tokens=3, **changes):
        message = AddSequence(
            seq_id=seq_id,
            prompt_ids=prompt_ids,
            output_ids=[],
            sampling=SamplingParams(temperature=0.0, seed=1),
            stop=StopRules(),
            logprobs=LogprobOptions(prompt=prompt),
            stop_ids=[],
            max_tokens=max_tokens,
            cache_root=b"root",
        )
        self.channel.inbox.put(dataclasses.replace(message, **changes))

    def steps(self, number=10_000):
        for _ in range(number):
            assert self.core.handle_messages(self.channel.receive(block=False))
            if not self.core.step():
                break
            while not self.channel.outbox.empty():
                self.outputs += self.channel.outbox.get().outputs
        assert self.scheduler.check_integrity() == ""

    def entries(self, seq_id) -> list[SampledLogprobs]:
        return [entry for output in self.outputs if output.seq_id == seq_id for entry in output.prompt_logprobs or []]

    def check(self, seq_id, prompt_ids, count):
        """Check every entry against transformers, in the order of the prompt."""
        with torch.inference_mode():
            values = self.oracle(torch.tensor([prompt_ids])).logits[0].float().log_softmax(1)[:-1]
        entries = self.entries(seq_id)
        assert [entry.token_id for entry in entries] == prompt_ids[1:]
        for entry, row in zip(entries, values, strict=True):
            assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=TOLERANCE)
            ranked = row.sort(descending=True, stable=True)
            assert abs(row[entry.token_id] - ranked.values[entry.rank - 1]) < TOLERANCE
            assert len(entry.top_ids) == (VOCAB_SIZE if count < 0 else count)
            assert entry.top_logprobs == pytest.approx(ranked.values[: len(entry.top_ids)].tolist(), abs=TOLERANCE)
            assert [row[token_id].item() for token_id in entry.top_ids] == pytest.approx(
                entry.top_logprobs, abs=TOLERANCE
            )


def prompt_of(length, seed=1):
    return torch.randint(0, VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize(
    ("length", "max_num_batched_tokens", "count"),
    [(2, 24, 3), (100, 24, 5), (100, 7, 0), (2 * SLICE_ROWS + 20, 512, -1)],
)
def test_prompt_scores_equal_transformers_for_any_chunking(model, length, max_num_batched_tokens, count):
    stage = Stage(model, max_num_batched_tokens)
    prompt_ids = prompt_of(length)
    stage.add(1, prompt_ids, count)
    stage.steps()
    stage.check(1, prompt_ids, count)
    first_token = next(place for place, output in enumerate(stage.outputs) if output.token_ids)
    assert not any(output.prompt_logprobs for output in stage.outputs[first_token + 1 :])


def test_a_prompt_of_one_token_has_nothing_to_score(model):
    stage = Stage(model)
    stage.add(1, [5])
    stage.steps()
    assert stage.entries(1) == []
    assert sum(len(output.token_ids) for output in stage.outputs) == 3


def test_a_scored_prompt_fills_the_prefix_cache_without_reading_it(model):
    stage = Stage(model)
    prompt_ids = prompt_of(60)
    for seq_id, prompt in ((1, None), (2, 2), (3, None)):
        stage.add(seq_id, prompt_ids, prompt)
        stage.steps()
    stage.check(2, prompt_ids, 2)
    cached = {output.seq_id: output.num_cached for output in stage.outputs if output.num_cached is not None}
    assert cached == {1: 0, 2: 0, 3: 48}


@pytest.mark.parametrize("num_steps", [1, 2, 4, 8])
def test_a_preempted_prompt_is_neither_scored_twice_nor_out_of_order(model, num_steps):
    stage = Stage(model, num_blocks=12)
    prompt_ids, urgent_ids = prompt_of(120), prompt_of(150, seed=2)
    stage.add(1, prompt_ids, 3, max_tokens=20)
    stage.steps(num_steps)
    stage.add(2, urgent_ids, 1, priority=-1)
    stage.steps()
    assert stage.scheduler.stats().num_preemptions > 0
    stage.check(1, prompt_ids, 3)
    stage.check(2, urgent_ids, 1)


def test_scored_prompts_in_a_crowd_keep_their_scores(model):
    stage = Stage(model, max_num_batched_tokens=40)
    prompts = {seq_id: prompt_of(20 + 9 * seq_id, seed=seq_id) for seq_id in range(1, 5)}
    for seq_id, prompt_ids in prompts.items():
        stage.add(seq_id, prompt_ids, None if seq_id == 2 else seq_id)
        stage.steps(1)
    stage.steps()
    assert stage.entries(2) == []
    for seq_id in (1, 3, 4):
        stage.check(seq_id, prompts[seq_id], seq_id)
