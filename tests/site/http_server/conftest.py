"""Tests of the HTTP server fail after 20 s, as they test hangs; fixtures have the usual time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

TEST_S = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_S, func_only=True))
