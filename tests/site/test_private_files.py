"""Files of an installation are private to its user, also after an upgrade; foreign files are left alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lightcone_site.private_files import data_open, data_tighten, installation_secret


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Entry points that other tests import narrow the umask of this process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory as earlier versions left it."""
    data_dir = tmp_path / "data"
    for path in ("lightcone.sqlite3", "lightcone.sqlite3-wal", "logs/web.log", "static/chat/base.css"):
        (data_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (data_dir / path).touch()
    for path in (data_dir, *data_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return data_dir


def test_loose_modes_are_tightened(data_dir: Path) -> None:
    assert data_open(data_dir) == data_dir
    data_tighten(data_dir)
    assert {mode(path) for path in (data_dir, *data_dir.rglob("*"))} == {0o700, 0o600}
    assert data_open(data_dir) is None


def test_a_directory_with_foreign_folders_keeps_its_mode(data_dir: Path) -> None:
    """Tightening /var/lib as root would break the machine."""
    (data_dir / "somebody").mkdir(mode=0o755)
    data_tighten(data_dir)
    assert mode(data_dir) == mode(data_dir / "somebody") == 0o755
    assert mode(data_dir / "lightcone.sqlite3") == 0o600
    assert mode(data_dir / "logs") == 0o700
    assert data_open(data_dir) == data_dir


def test_a_world_writable_directory_keeps_its_mode(data_dir: Path) -> None:
    data_dir.chmod(0o1777)
    data_tighten(data_dir)
    assert mode(data_dir) == 0o777


def test_links_are_not_followed(data_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").touch(mode=0o644)
    (data_dir / "logs" / "link").symlink_to(outside)
    (data_dir / "logs" / "gone").symlink_to(tmp_path / "nowhere")
    data_tighten(data_dir)
    assert (mode(outside), mode(outside / "file")) == (0o755, 0o644)


def test_a_secret_is_created_once_and_private(tmp_path: Path) -> None:
    first = installation_secret(tmp_path, "pepper")
    assert len(first) == 64
    assert installation_secret(tmp_path, "pepper") == first
    assert installation_secret(tmp_path, "other") != first
    assert stat.S_IMODE((tmp_path / "secrets" / "pepper").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_concurrent_first_uses_get_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: installation_secret(tmp_path, "pepper"), range(32)))
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["pepper"], "no drafts are left"
