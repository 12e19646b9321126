"""How many adapters a core serves at once, and what it says of one more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.execution import adapters
from engine.execution.adapters import CoreAdapters, ImageAdapter
from engine.layers.adapters import MAX_ADAPTERS, make_adapters
from engine.messages import IMAGE_ADAPTER, AddAdapter


@pytest.mark.parametrize("sees", [False, True])
def test_one_adapter_too_many_is_told_how_many_there_may_be(monkeypatch, sees):
    """A core with an adapter of images said 128, and had refused the 128th."""

    def unread(*_):
        raise ModelLoadError("not read here")

    monkeypatch.setattr(adapters, "load_adapter", unread)
    device, sent = torch.device("cpu"), []
    loaded = SimpleNamespace(adapter_targets=[], device=device)
    runner = SimpleNamespace(serve_adapters=lambda _: None)
    of_images = ImageAdapter(make_adapters([], device, torch.float32), SimpleNamespace(entries={})) if sees else None
    core = CoreAdapters(loaded, runner, torch.float32, sent.append, of_images)
    most = MAX_ADAPTERS - sees
    for number in range(most + 1):
        core.load(AddAdapter(IMAGE_ADAPTER + 1 + number, "a", "x"))
    (refused,) = [message.error for message in sent if message.error != "not read here"]
    assert refused.startswith(f"at most {most} adapters are served at once")
    assert ("beside that of images" in refused) == sees
