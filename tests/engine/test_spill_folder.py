"""The folder of a spill file: its room, and whether it is in memory."""

from __future__ import annotations

import os
from collections import namedtuple

import pytest

from engine import spill_folder
from engine.spill_folder import is_in_memory, room_bytes


def test_a_twentieth_of_the_disk_is_left_free(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(spill_folder.shutil, "disk_usage", lambda folder: usage(1000, 900, 60))
    assert room_bytes(tmp_path) == 10
    monkeypatch.setattr(spill_folder.shutil, "disk_usage", lambda folder: usage(1000, 990, 10))
    assert room_bytes(tmp_path) == 0


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", True), ("ramfs", True), ("ext4", False)])
def test_a_folder_in_memory_is_told_by_the_mount_that_it_is_on(tmp_path, monkeypatch, kind, expected):
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"21 1 999:1 / /run rw - tmpfs tmpfs rw\n22 1 {number} / / rw shared:1 - {kind} somewhere rw\n")
    monkeypatch.setattr(spill_folder, "MOUNTS", mounts)
    assert is_in_memory(tmp_path) is expected
    monkeypatch.setattr(spill_folder, "MOUNTS", tmp_path / "nothing")
    assert not is_in_memory(tmp_path)
