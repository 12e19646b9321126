"""The doctor's check of the spill file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightcone_site.serve import diagnosis
from lightcone_site.serve.diagnosis import check_spill
from lightcone_site.serve.lock import InstanceLock

GIB = 2**30


@pytest.fixture
def room(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ask for a spill file of 4 GiB; return what the disk is said to be."""
    disk = {"bytes": 10 * GIB, "is_in_memory": False}
    settings.DATA_DIR = settings.LIGHTCONE_KV_SPILL_FOLDER = tmp_path
    settings.LIGHTCONE_KV_SPILL_BYTES = 4 * GIB
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(diagnosis, "room_bytes", lambda folder: disk["bytes"])
    monkeypatch.setattr(diagnosis, "is_in_memory", lambda folder: disk["is_in_memory"])
    return disk


def test_a_file_that_can_be_had_is_reported_with_its_room(room: dict[str, Any], tmp_path: Path) -> None:
    (finding,) = check_spill()
    assert (finding.text, finding.is_problem) == (f"4.0 GiB in {tmp_path}, which has room for 10.0", False)


def test_a_disk_without_room_is_a_problem_unless_the_running_server_has_taken_it(
    room: dict[str, Any], tmp_path: Path
) -> None:
    room["bytes"] = GIB
    (finding,) = check_spill()
    assert "lower LIGHTCONE_KV_SPILL_BYTES" in finding.remedy
    lock = InstanceLock(tmp_path / "run" / "serve.lock")
    (finding,) = check_spill()
    lock.release()
    assert not finding.is_problem
    assert "room for 1.0 more beside the running server's" in finding.text


def test_a_folder_in_memory_is_a_problem(room: dict[str, Any]) -> None:
    room["is_in_memory"] = True
    finding, _ = check_spill()
    assert "is in memory" in finding.text
    assert "LIGHTCONE_KV_SPILL_FOLDER" in finding.remedy


@pytest.mark.parametrize(("name", "value"), [("LIGHTCONE_DEVICE", "cuda"), ("LIGHTCONE_PREFIX_CACHING", False)])
def test_settings_with_which_there_is_no_file_are_named(
    room: dict[str, Any], settings: Any, name: str, value: object
) -> None:
    setattr(settings, name, value)
    (finding,) = check_spill()
    assert finding.is_problem
    assert name in finding.text


def test_a_folder_that_is_gone_is_named(
    room: dict[str, Any], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    settings.LIGHTCONE_KV_SPILL_FOLDER = tmp_path / "gone"
    (finding,) = check_spill()
    assert finding.text == f"{tmp_path / 'gone'}: No such file or directory"
    assert "LIGHTCONE_KV_SPILL_FOLDER" in finding.remedy
