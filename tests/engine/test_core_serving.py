"""What a core says when it cannot start: the cause, for the operator, and not that there was one."""

from __future__ import annotations

import pytest
import torch

from engine import core_serving
from engine.config import EngineConfig
from engine.core_serving import serve
from engine.link import QueueChannel
from engine.messages import CoreFailed


def failure(tmp_path, **options) -> str:
    channel = QueueChannel()
    serve(EngineConfig(tmp_path / "model.gguf", "tiny", **options), channel)
    (message,) = [message for message in _said(channel) if isinstance(message, CoreFailed)]
    return message.message


def _said(channel):
    while not channel.outbox.empty():
        yield channel.outbox.get()


def test_a_device_that_is_not_there_is_named_before_the_model_is_read(tmp_path, monkeypatch):
    """It was "the engine's core failed; its log has the details", on the terminal and in the console."""
    monkeypatch.setattr(torch.version, "cuda", None)
    assert failure(tmp_path, device="cuda").startswith("device 'cuda' cannot be used: this torch")


def test_a_promise_that_a_gpu_does_not_hold_is_refused_by_its_setting(tmp_path):
    assert failure(tmp_path, device="cuda", batch_invariant=True).startswith("batch_invariant is not offered on 'cuda'")


@pytest.mark.parametrize("part", ["load_model", "ModelRunner"])
def test_a_model_that_does_not_fit_the_device_says_so(part, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(core_serving, "load_model", lambda *arguments, **options: None)
    monkeypatch.setattr(core_serving, part, refuse)
    assert "does not suffice for this model: CUDA out of memory. Tried to allocate 2.00 GiB." in failure(tmp_path)
