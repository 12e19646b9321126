"""Files of an installation are for its user alone, as prompts, hashes, sessions and logs are in them. The standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

OTHERS = 0o077
FOLDERS = frozenset({"files", "logs", "run", "secrets", "static", "valkey"})
DATABASE = "lightcone.sqlite3*"
MAY_BE_THERE = FOLDERS | {"lost+found"}


def umask_set() -> None:
    """Keep what this process and its children make from group and others."""
    os.umask(OTHERS)


def data_tighten(data_dir: Path) -> None:
    """Take from group and others what an earlier version left them: in our folders, of the database, and of the data directory itself.

    A directory that has others' folders in it, such as a home, keeps its mode, as do files of other users; `data_open` tells of them.
    """
    for path in [*_ours(data_dir), *([data_dir] if _is_ours_alone(data_dir) else [])]:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if mode & OTHERS and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def data_open(data_dir: Path) -> Path | None:
    """Return the first place of the installation that group or others may enter or read; None if there is none, as it should be."""
    for path in (data_dir, *data_dir.glob(DATABASE)):
        with contextlib.suppress(OSError):
            if path.stat().st_mode & OTHERS:
                return path
    return None


def _ours(data_dir: Path) -> Iterator[Path]:
    yield from data_dir.glob(DATABASE)
    for name in FOLDERS:
        yield data_dir / name
        for folder, folders, files in os.walk(data_dir / name):
            yield from (Path(folder, entry) for entry in (*folders, *files))


def _is_ours_alone(data_dir: Path) -> bool:
    folders = {entry.name for entry in os.scandir(data_dir) if entry.is_dir(follow_symlinks=False)}
    status = data_dir.stat()
    return folders <= MAY_BE_THERE and status.st_uid == os.getuid() and not status.st_mode & stat.S_ISVTX
