"""The doctor's check of the model. Another process opens it, as this one must not load torch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from lightcone_site.serve import diagnosis
from lightcone_site.serve.diagnosis import check_model

COMPILE_S = 400
"""Ten times the time on an idle machine."""


@pytest.mark.parametrize(
    ("is_fine", "said", "is_problem"), [(True, "llama, 30 layers", False), (False, "m.gguf: not a GGUF file", True)]
)
def test_the_doctor_reports_the_finding_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, settings: Any, is_fine: bool, said: str, is_problem: bool
) -> None:
    asked = []

    def engine_check(module: str, argument: str, what: str, timeout_s: float, *further: str) -> tuple[bool, str]:
        asked.append((module, argument, *further))
        return is_fine, said

    monkeypatch.setattr(diagnosis, "engine_check", engine_check)
    settings.LIGHTCONE_MODEL, settings.LIGHTCONE_MODEL_NAME = "/models/m.gguf", "mine"
    settings.LIGHTCONE_MMPROJ = "mmproj-F16.gguf"
    (finding,) = check_model()
    assert asked == [("engine.loading.inspection", "/models/m.gguf", "mmproj-F16.gguf")]
    assert (finding.is_problem, said in finding.text, finding.text.startswith("mine: ")) == (is_problem, True, True)


def test_the_first_check_may_take_as_long_as_compiling_kernels(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """In a clean clone on a busy machine a good model was reported as bad."""

    def run(command: list[str], *, timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
        if timeout < COMPILE_S:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 0, "llama, 30 layers\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    settings.LIGHTCONE_MODEL = "/models/m.gguf"
    (finding,) = check_model()
    assert not finding.is_problem, finding.text


def test_model_check_gives_the_engine_the_settings_and_the_path(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    asked: list[dict[str, Any]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:3] == ["-m", "engine.core.model_check"]
        asked.append(json.loads(command[3]))
        return subprocess.CompletedProcess(command, len(asked) - 1)

    monkeypatch.setattr("lightcone_site.management.commands.model.subprocess.run", run)
    settings.LIGHTCONE_WEIGHTS = "float32"
    call_command("model", "check", "/models/m.gguf")
    assert (asked[0]["model_path"], asked[0]["weights"]) == ("/models/m.gguf", "float32")
    with pytest.raises(CommandError, match="cannot be served with these settings"):
        call_command("model", "check")


@pytest.mark.slow
def test_the_model_check_runs_the_engine(tmp_path: Path, settings: Any) -> None:
    settings.LIGHTCONE_MODEL = str(tmp_path / "llama3.2")
    (finding,) = check_model()
    assert finding.text.startswith("llama3.2: ")
    assert "nothing is fetched by its name" in finding.text
    assert "LIGHTCONE_MODEL" in finding.remedy
