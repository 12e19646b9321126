"""A server of files that the settings admit, and a fetcher that finds it under any name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chat.media.cache import MediaCache
from chat.media.fetching import MediaFetcher
from tests.chat.media.fetched import LIMITS, to_loopback
from tests.chat.media.server import FileServer, file_server


@pytest_asyncio.fixture
async def server(settings: Any) -> AsyncIterator[FileServer]:
    """A server that the settings admit by name, port and network."""
    async with file_server() as made:
        settings.LIGHTCONE_MEDIA_DOMAINS = [f"files.example:{made.port}"]
        settings.LIGHTCONE_MEDIA_NETWORKS = ["127.0.0.0/8"]
        settings.LIGHTCONE_MEDIA_HTTP = True
        yield made


@pytest.fixture
def cache(tmp_path: Path) -> MediaCache:
    return MediaCache(tmp_path / "cache", 1 << 20)


@pytest.fixture
def fetcher(cache: MediaCache) -> MediaFetcher:
    return MediaFetcher(LIMITS, cache, resolve=to_loopback)
