"""Free memory of the machine and of its container."""

from __future__ import annotations

import torch

from engine.execution.kv_cache import _container_free, free_memory


def test_a_cpu_reports_a_plausible_amount():
    assert 1 << 20 < free_memory(torch.device("cpu")) < 1 << 50


def control_group(folder, limit, **statistics):
    """Write a control group that uses 400,000 bytes."""
    (folder / "max").write_text(f"{limit}\n")
    (folder / "current").write_text("400000\n")
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in statistics.items()))
    return ((folder, "max", "current"),)


def test_a_container_limit_less_its_use_bounds_free_memory(tmp_path):
    assert _container_free(control_group(tmp_path, 1000000, anon=400000)) == 600000


def test_pages_of_files_count_as_free_memory(tmp_path):
    """Those of the model's file, which is read just before, took the room of the cache in a container."""
    group = control_group(tmp_path, 1000000, anon=100000, file=300000, inactive_file=250000, active_file=50000)
    assert _container_free(group) == 900000
    (tmp_path / "memory.stat").unlink()
    assert _container_free(group) == 600000


def test_an_unlimited_or_missing_container_does_not_bound_memory(tmp_path):
    assert _container_free(control_group(tmp_path, "max")) > 1 << 60
    assert _container_free(((tmp_path / "nowhere", "a", "b"),)) > 1 << 60
