"""Embeddings equal those of transformers in float32: in chunks, in a crowd, preempted, cached."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from engine.api import EmbedOptions, LogprobOptions, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from engine.messages import AbortSequences, AddSequence
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core
from tests.engine.random_model import SIZES, random_model

VOCAB_SIZE, WIDTH = SIZES["vocab_size"], SIZES["hidden_size"]
TOLERANCE = 1e-5
"""Of the numbers of vectors of length 1; both sides are float32."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small random Llama, in our runner and in transformers."""
    oracle = random_model(seed=8, spread=0.3)
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

    def add(self, seq_id, prompt_ids, embed=None, **changes):
        message = AddSequence(
            seq_id=seq_id,
            prompt_ids=prompt_ids,
            output_ids=[],
            sampling=SamplingParams(temperature=0.0, seed=1),
            stop=StopRules(),
            logprobs=LogprobOptions(),
            stop_ids=[],
            max_tokens=1 if embed else 6,
            cache_root=b"root",
            embed=embed,
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

    def check(self, seq_id, prompt_ids, embed):
        """Check that the sequence has exactly one output, the vector of transformers."""
        (said,) = [output for output in self.outputs if output.seq_id == seq_id]
        assert (said.finish, said.token_ids) == ("embedded", [])
        with torch.inference_mode():
            states = self.oracle.model(torch.tensor([prompt_ids])).last_hidden_state[0]
        pooled = states.mean(0) if embed.pooling == "mean" else states[-1]
        expected = torch.nn.functional.normalize(pooled[: embed.dimensions], dim=0)
        assert said.vector == pytest.approx(expected.tolist(), abs=TOLERANCE)
        return said


def prompt_of(length, seed=1):
    return torch.randint(0, VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


MEAN, LAST = EmbedOptions("mean"), EmbedOptions("last")


@pytest.mark.parametrize("embed", [MEAN, LAST, EmbedOptions("mean", 7), EmbedOptions("last", WIDTH)])
@pytest.mark.parametrize(
    ("length", "max_num_batched_tokens"), [(1, 24), (2, 24), (100, 24), (100, 7), (17, 16), (32, 64)]
)
def test_vectors_equal_transformers_for_any_chunking(model, embed, length, max_num_batched_tokens):
    stage = Stage(model, max_num_batched_tokens)
    prompt_ids = prompt_of(length)
    stage.add(1, prompt_ids, embed)
    stage.steps()
    assert stage.check(1, prompt_ids, embed).num_cached == 0
    assert stage.scheduler.stats().num_free_blocks == 24


def test_mean_pooling_skips_the_prefix_cache_and_last_token_pooling_uses_it(model):
    stage = Stage(model)
    prompt_ids = prompt_of(60)
    wanted = {1: MEAN, 2: MEAN, 3: LAST, 4: None}
    for seq_id, embed in wanted.items():
        stage.add(seq_id, prompt_ids, embed)
        stage.steps()
    cached = {output.seq_id: output.num_cached for output in stage.outputs if output.num_cached is not None}
    assert cached == {1: 0, 2: 0, 3: 48, 4: 48}
    for seq_id in (1, 2, 3):
        stage.check(seq_id, prompt_ids, wanted[seq_id])


@pytest.mark.parametrize("embed", [MEAN, LAST])
@pytest.mark.parametrize("num_steps", [1, 3, 5])
def test_a_preempted_prompt_counts_each_position_once(model, embed, num_steps):
    stage = Stage(model, num_blocks=12)
    prompt_ids, urgent_ids = prompt_of(150), prompt_of(150, seed=2)
    stage.add(1, prompt_ids, embed)
    stage.steps(num_steps)
    stage.add(2, urgent_ids, MEAN, priority=-1)
    stage.steps()
    assert stage.scheduler.stats().num_preemptions == 1
    stage.check(1, prompt_ids, embed)
    stage.check(2, urgent_ids, MEAN)


def test_a_crowd_of_vectors_and_answers_share_steps(model):
    wanted = {1: MEAN, 2: None, 3: LAST, 4: None, 5: EmbedOptions("mean", 9)}
    prompts = {seq_id: prompt_of(3 + 9 * seq_id, seed=seq_id) for seq_id in wanted}
    alone, crowd = {}, Stage(model, max_num_batched_tokens=20)
    for seq_id in (2, 4):
        stage = Stage(model, max_num_batched_tokens=20)
        stage.add(seq_id, prompts[seq_id])
        stage.steps()
        alone[seq_id] = [token_id for output in stage.outputs for token_id in output.token_ids]
    for seq_id, prompt_ids in prompts.items():
        crowd.add(seq_id, prompt_ids, wanted[seq_id])
        crowd.steps(1)
    crowd.steps()
    for seq_id, embed in wanted.items():
        if embed is not None:
            crowd.check(seq_id, prompts[seq_id], embed)
        else:
            assert [
                token for output in crowd.outputs if output.seq_id == seq_id for token in output.token_ids
            ] == alone[seq_id]


def test_an_aborted_embedding_frees_its_blocks(model):
    stage = Stage(model)
    stage.add(1, prompt_of(100), MEAN)
    stage.steps(2)
    stage.channel.inbox.put(AbortSequences([1]))
    stage.steps()
    assert [output.finish for output in stage.outputs] == ["aborted"]
    assert stage.scheduler.stats().num_free_blocks == 24
