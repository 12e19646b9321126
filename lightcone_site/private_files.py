"""Files of an installation are for its user alone: they hold prompts, sessions and secrets. Standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

OTHERS = 0o077
FOLDERS = frozenset({"files", "logs", "run", "secrets", "static", "valkey"})
DATABASE = "lightcone.sqlite3*"
KNOWN_FOLDERS = FOLDERS | {"models", "lost+found"}
"""Files of models may be links to those of other programs, whose access is not ours to change."""


def umask_set() -> None:
    """Create files of this process and its children without access for group and others."""
    os.umask(OTHERS)


def data_tighten(data_dir: Path) -> None:
    """Remove access of group and others from our files, and from the data directory unless other folders are in it."""
    for path in [*_ours(data_dir), *([data_dir] if _is_ours_alone(data_dir) else [])]:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if mode & OTHERS and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def data_open(data_dir: Path) -> Path | None:
    """Return the first path of the installation that group or others may enter or read; None if there is none."""
    for path in (data_dir, *data_dir.glob(DATABASE)):
        with contextlib.suppress(OSError):
            if path.stat().st_mode & OTHERS:
                return path
    return None


def installation_secret(data_dir: Path, name: str, *, num_bytes: int = 32) -> str:
    """Return a secret of the data directory, in hex; make it on first use. Of several processes the first wins."""
    folder = data_dir / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        draft = folder / f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(os.urandom(num_bytes).hex())
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    return path.read_text().strip()


def _ours(data_dir: Path) -> Iterator[Path]:
    yield from data_dir.glob(DATABASE)
    for name in FOLDERS:
        yield data_dir / name
        for folder, folders, files in os.walk(data_dir / name):
            yield from (Path(folder, entry) for entry in (*folders, *files))


def _is_ours_alone(data_dir: Path) -> bool:
    folders = {entry.name for entry in os.scandir(data_dir) if entry.is_dir(follow_symlinks=False)}
    status = data_dir.stat()
    return folders <= KNOWN_FOLDERS and status.st_uid == os.getuid() and not status.st_mode & stat.S_ISVTX
