"""A core that leaves threads to other cores computes the same numbers with those that it keeps."""

from __future__ import annotations

import threading

import pytest
import torch

from engine.config import EngineConfig
from engine.execution.runner import ModelRunner
from engine.kernels.cpu.openmp import PARALLEL
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.loading.loader import load_model
from engine.quantization.panel_weight import PanelWeight
from engine.sequence import Chunk, StepPlan
from tests.engine.execution.test_runner import VOCAB_SIZE, make_sequence
from tests.engine.random_model import random_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PARALLEL is None, reason="needs GNU's OpenMP"),
    pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="has own threads with AVX2 only"),
]
LENGTH = 2200
"""Beyond two pieces of a context, which threads share where rows are few."""


@pytest.fixture
def runner(tmp_path):
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
    random_model(vocab_size=VOCAB_SIZE, head_dim=64, max_position_embeddings=4096, **sizes).save_pretrained(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    runner = ModelRunner(load_model(tmp_path), EngineConfig(tmp_path, "tiny", kv_cache_bytes=8 << 20))
    yield runner
    KERNEL_THREADS.stop()
    torch.set_num_threads(before)


def test_a_prompt_and_its_next_tokens_are_equal_to_the_bit_with_any_number_of_threads(runner):
    assert KERNEL_THREADS.has_own
    sequence = make_sequence(1, LENGTH, runner.groups.lone_table(LENGTH))
    found = []
    for limit in (3, 1, 2):
        KERNEL_THREADS.limit(limit)
        steps = [(start, min(256, LENGTH - 1 - start)) for start in range(0, LENGTH - 1, 256)] + [(LENGTH - 1, 1)]
        logits = [runner.forward(StepPlan((Chunk(sequence, start, count, True),))) for start, count in steps]
        found.append(torch.cat(logits))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_torch_may_compute_with_as_many_threads_on_a_thread_that_asks(runner):
    found = []

    def ask() -> None:
        with KERNEL_THREADS.shared_with_torch():
            found.append(torch.get_num_threads())

    for work in (ask, lambda: found.append(torch.get_num_threads())):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [3, 1], "later threads leave the processors to ours"
    assert torch.get_num_threads() == 1
