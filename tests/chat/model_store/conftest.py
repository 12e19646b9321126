"""A store in a temporary folder, and what a model is without asking the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chat.model_store import hub, local
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from engine.api import ModelDescription
from tests.chat.model_store.local_hub import LocalHub

DESCRIPTION = ModelDescription("llama", 2, 4096, "Q4_K_M", True, "hermes", "none", "mit", {"temperature": 0.2})


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe every model alike, but refuse those that say `not a model`."""

    def description_of(path: Path) -> ModelDescription:
        if path.is_file() and path.read_bytes() == b"not a model":
            raise StoreError(f"{path.name} is not a GGUF file.")
        return DESCRIPTION

    for module in (local, hub):
        monkeypatch.setattr(module, "description_of", description_of)


@pytest.fixture
def local_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Run a hub. Transfers are written in small pieces, and tried again at once."""
    monkeypatch.setattr(hub, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(hub, "RETRY_S", 0.0)
    with LocalHub().running() as running:
        yield running
