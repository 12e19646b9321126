"""Free memory of the machine and of its container."""

from __future__ import annotations

import torch

from engine.execution.kv_cache import _container_free, free_memory


def test_a_cpu_reports_a_plausible_amount():
    assert 1 << 20 < free_memory(torch.device("cpu")) < 1 << 50


def test_a_container_limit_less_its_use_bounds_free_memory(tmp_path):
    (tmp_path / "max").write_text("1000000\n")
    (tmp_path / "current").write_text("400000\n")
    assert _container_free(((str(tmp_path / "max"), str(tmp_path / "current")),)) == 600000


def test_an_unlimited_or_missing_container_does_not_bound_memory(tmp_path):
    (tmp_path / "max").write_text("max\n")
    (tmp_path / "current").write_text("400000\n")
    assert _container_free(((str(tmp_path / "max"), str(tmp_path / "current")),)) > 1 << 60
    assert _container_free((("/nonexistent/a", "/nonexistent/b"),)) > 1 << 60
