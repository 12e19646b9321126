"""`manage.py model check` gives the engine's configuration to the process that loads the model."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from chat.workers.engine_start import engine_config
from engine.core.link import unpack_config
from lightcone_site.management.commands import model


@pytest.mark.parametrize("code", [0, 1])
def test_the_whole_configuration_arrives_with_the_path_that_was_asked_for(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """With a folder for the spill file the command failed before it loaded anything: paths are not JSON."""
    settings.LIGHTCONE_MODEL = str(tmp_path / "served.gguf")
    settings.LIGHTCONE_KV_SPILL_FOLDER = tmp_path
    sent: list[str] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        sent.append(command[-1])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(model.subprocess, "run", run)
    if code:
        with pytest.raises(CommandError, match="cannot be served"):
            call_command("model", "check", str(tmp_path / "other.gguf"))
    else:
        call_command("model", "check", str(tmp_path / "other.gguf"))
    assert unpack_config(sent[0].encode()) == replace(engine_config(), model_path=tmp_path / "other.gguf")
