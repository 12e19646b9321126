"""The cache of remote media is bounded, whole and of one tenant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chat.media import cache as cache_module
from chat.media.cache import Kept, MediaCache

URL = "https://files.example/cat.png"


def kept(data: bytes, etag: str = '"v1"') -> Kept:
    return Kept(URL, etag, "", data)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_an_entry_is_of_its_tenant_and_url(tmp_path: Path) -> None:
    cache = MediaCache(tmp_path / "cache", 1 << 20)
    cache.put("a", URL, kept(b"cat"))
    assert cache.get("a", URL) == kept(b"cat")
    assert cache.get("b", URL) is None
    assert cache.get("a", URL + "?") is None
    assert cache.get("a" + URL[:5], URL[5:]) is None
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "cache").iterdir())


def test_many_urls_stay_within_the_bytes_and_the_oldest_goes_first(tmp_path: Path) -> None:
    cache = MediaCache(tmp_path, 100_000)
    for number in range(200):
        cache.put("a", f"{URL}{number}", kept(bytes(1000)))
        if number:
            assert cache.get("a", f"{URL}0") is not None or number > 70
    assert folder_bytes(tmp_path) <= 100_000 + 1000
    assert cache.get("a", f"{URL}199") is not None
    assert cache.get("a", f"{URL}1") is None


def test_entries_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 5)
    cache = MediaCache(tmp_path, 1 << 20)
    for number in range(20):
        cache.put("a", f"{URL}{number}", kept(b"x"))
    assert len(list(tmp_path.iterdir())) == 5


def test_what_is_not_used_for_a_day_goes(tmp_path: Path) -> None:
    cache = MediaCache(tmp_path, 1 << 20)
    cache.put("a", URL, kept(b"old"))
    (old,) = tmp_path.iterdir()
    os.utime(old, (0, 0))
    cache.put("a", f"{URL}2", kept(b"new"))
    assert cache.get("a", URL) is None


def test_a_damaged_entry_is_none(tmp_path: Path) -> None:
    cache = MediaCache(tmp_path, 1 << 20)
    cache.put("a", URL, kept(b"cat"))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[:-1] + b"x", b"", b"{}\n", b"[1]\ncat", b"\xff\n", b"x" * 100_000):
        path.write_bytes(broken)
        assert cache.get("a", URL) is None


def test_nothing_is_kept_without_room_or_validators(tmp_path: Path) -> None:
    MediaCache(tmp_path, 0).put("a", URL, kept(b"cat"))
    MediaCache(tmp_path, 2).put("a", URL, kept(b"cat"))
    MediaCache(tmp_path, 100).put("a", URL, kept(b"cat", etag=""))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = MediaCache(tmp_path / "file" / "cache", 1 << 20)
    cache.put("a", URL, kept(b"cat"))
    assert cache.get("a", URL) is None
