"""What the process of a job says of an import."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from chat.catalog.model_choice import model_choice
from chat.model_jobs.process import Order, import_
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import ModelDescription


def test_an_import_says_of_each_model_why_its_projector_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    described = ModelDescription("llama", 2, 64, "F32", True, "none", "none")
    monkeypatch.setattr("chat.model_store.local.description_of", lambda path: described)
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(model_choice(path="", name="").path, source / "smol.gguf")
    (source / "mmproj-broken.gguf").write_bytes(b"GGUF")
    store = ModelStore(tmp_path / "store")
    import_(Order("import", str(source), "", "", str(store.root), "", "cpu"), store)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["message"].startswith("1 of 1 models are stored. smol reads text alone, as no projector beside it")
    assert "mmproj-broken.gguf" in last["message"]
