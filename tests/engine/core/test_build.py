"""A core that cannot start reports the cause; a core that loses its device is replaced."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.api import SamplingParams, StopRules
from engine.config import EngineConfig
from engine.core import build as build
from engine.core.build import serve
from engine.execution.runner import ModelRunner
from engine.messages import CoreFailed, LoadModel, Shutdown
from tests.engine.in_process import QueueChannel
from tests.engine.real_engine import RealEngine, tokens_of, write_model


def failure(tmp_path, **options) -> str:
    channel = QueueChannel()
    channel.inbox.put(LoadModel())
    serve(EngineConfig(tmp_path / "model.gguf", "tiny", **options), channel)
    (message,) = [message for message in _said(channel) if isinstance(message, CoreFailed)]
    return message.message


def _said(channel):
    while not channel.outbox.empty():
        yield channel.outbox.get()


def test_a_core_reads_nothing_of_a_model_before_it_is_told_to(tmp_path):
    """The worker finds meanwhile whether the tokenizer is served."""
    channel = QueueChannel()
    channel.inbox.put(Shutdown())
    serve(EngineConfig(tmp_path / "missing.gguf", "tiny"), channel)
    assert not list(_said(channel))


def test_a_missing_device_is_reported_before_the_model_is_read(tmp_path, monkeypatch):
    """Terminal and console only had "the engine's core failed; its log has the details"."""
    monkeypatch.setattr(torch.version, "cuda", None)
    assert failure(tmp_path, device="cuda").startswith("device 'cuda' cannot be used: this torch")


def test_a_setting_that_a_gpu_cannot_honour_is_refused_by_name(tmp_path):
    assert failure(tmp_path, device="cuda", batch_invariant=True).startswith("batch_invariant is not offered on 'cuda'")


@pytest.mark.parametrize("part", ["load_model", "ModelRunner"])
def test_a_model_too_large_for_the_device_is_reported(part, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(build, "load_model", lambda *arguments, **options: SimpleNamespace(config=None))
    monkeypatch.setattr(build, part, refuse)
    assert "does not suffice for this model: CUDA out of memory. Tried to allocate 2.00 GiB." in failure(tmp_path)


@pytest.mark.slow
def test_an_answer_continues_in_a_new_core_after_a_lost_device(tmp_path, monkeypatch):
    """The new core loads the model again and gives the same answer as without a failure."""
    write_model(tmp_path)
    engine = RealEngine(tmp_path)
    sampling, stop = SamplingParams(temperature=1.0, seed=4), StopRules(max_tokens=9, ignore_eos=True)
    undisturbed = tokens_of(engine.answer(sampling=sampling, stop=stop))
    forward, steps = ModelRunner.forward, []

    def lose_the_device(runner, plan):
        steps.append(plan)
        if len(steps) == 4:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return forward(runner, plan)

    monkeypatch.setattr(ModelRunner, "forward", lose_the_device)
    try:
        assert tokens_of(engine.answer(sampling=sampling, stop=stop)) == undisturbed
        assert engine.engine.stats().num_restarts == 1
    finally:
        engine.close()
