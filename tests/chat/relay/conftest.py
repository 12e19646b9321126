"""Fixtures of a separate deployment per test on the run's Valkey."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.chat.relay.world import World


@pytest.fixture
async def world(valkey: str) -> AsyncIterator[World]:
    world = World(valkey, f"test-{secrets.token_hex(4)}")
    yield world
    await world.close()
