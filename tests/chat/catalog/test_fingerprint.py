"""The fingerprint changes with the served model and its settings, and with nothing else."""

import os
import shutil
from pathlib import Path

import pytest

from chat.catalog import fingerprint
from chat.catalog.fingerprint import EDGE_BYTES, WHOLE_BYTES, system_fingerprint


def of(path: Path) -> str:
    return system_fingerprint(path=str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(3 * WHOLE_BYTES))
    return folder


def test_a_fingerprint_is_fp_and_a_digest(folder):
    assert of(folder).startswith("fp_")
    assert len(of(folder)) == 19
    assert of(folder) == of(folder)


@pytest.mark.parametrize("place", [0, EDGE_BYTES - 1, 3 * WHOLE_BYTES - EDGE_BYTES, 3 * WHOLE_BYTES - 1])
def test_changed_weights_change_the_fingerprint(folder, place):
    before = of(folder)
    weights = bytearray(3 * WHOLE_BYTES)
    weights[place] = 1
    (folder / "model.safetensors").write_bytes(weights)
    assert of(folder) != before


def test_small_files_are_hashed_completely(folder):
    before = of(folder)
    (folder / "config.json").write_text("[]")
    assert of(folder) != before


def test_a_renamed_or_longer_file_changes_the_fingerprint(folder):
    seen = {of(folder)}
    (folder / "config.json").rename(folder / "other.json")
    seen.add(of(folder))
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    seen.add(of(folder))
    assert len(seen) == 3


def test_a_changed_part_of_a_model_changes_the_fingerprint_and_other_files_do_not(tmp_path):
    first, second = (tmp_path / f"[m]-0000{part}-of-00002.gguf" for part in (1, 2))
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    before = of(first)
    (tmp_path / "[m]-00002-of-00003.gguf").write_bytes(b"another model")
    assert of(first) == before
    second.write_bytes(b"3")
    assert of(first) != before


def test_modification_times_do_not_change_the_fingerprint(folder):
    before = of(folder)
    os.utime(folder / "config.json", (5, 5))
    assert of(folder) == before


def test_weight_form_cache_dtype_and_build_change_the_fingerprint(folder, settings, monkeypatch):
    seen = {of(folder)}
    settings.LIGHTCONE_WEIGHTS = "another"
    seen.add(of(folder))
    settings.LIGHTCONE_KV_CACHE = "another"
    seen.add(of(folder))
    monkeypatch.setattr(fingerprint, "_build", lambda: "another")
    seen.add(of(folder))
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["elsewhere", "nul\0", "x" * 5_000])
def test_unreadable_files_get_a_fingerprint_of_their_path(folder, name):
    assert of(folder.parent / name) != of(folder)
    shutil.rmtree(folder)
    assert of(folder) != of(folder.parent / name)
