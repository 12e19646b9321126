"""Tests of the HTTP server wait for hangs: they fail within 20 s.

Fixtures, which start servers, have the time limit of all tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TEST_S = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_S, func_only=True))
