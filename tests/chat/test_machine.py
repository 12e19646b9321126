import subprocess
from pathlib import Path

import pytest

from chat import machine


def test_the_memory_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.memory_of("cpu") > 2**28
    (tmp_path / "memory.max").write_text("268435456\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", [tmp_path / "none", tmp_path / "memory.max", tmp_path / "absent"])
    assert machine.memory_of("cpu") == 2**28


@pytest.mark.parametrize("answer", ["", "no devices were found", None])
def test_a_gpu_whose_memory_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if answer is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, answer)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(LookupError, match="nvidia-smi"):
        machine.memory_of("cuda")
