"""The `system_fingerprint` of answers: equal while the same build serves the same files in the same form.

It depends on the engine's code, the model's files and the forms of weights and cache, not on times or machines, so that
all web processes agree. A large file counts with its size, beginning and end; a file of another machine with its path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache, lru_cache
from glob import escape
from pathlib import Path

from django.conf import settings

from chat.model_store.manifest import PART
from engine.gguf_pair import MARK

WHOLE_BYTES = 2**20
EDGE_BYTES = 2**16
MAX_FILES = 1_000

FileState = tuple[str, int, int]
"""Path, bytes and modification time (ns). A file is read again if they change."""


def system_fingerprint(*, path: str) -> str:
    """Return the fingerprint of the model at `path`. It reads files, and does not raise for unreadable ones."""
    form = f"{settings.LIGHTCONE_WEIGHTS}\0{settings.LIGHTCONE_KV_CACHE}"
    digest = hashlib.sha256(f"{_build()}\0{form}\0{path}\0".encode())
    digest.update(_files_digest(file_states(Path(path))))
    return f"fp_{digest.hexdigest()[:16]}"


@cache
def _build() -> str:
    root = settings.BASE_DIR / "engine"
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def file_states(path: Path) -> tuple[FileState, ...]:
    """Return the states of the file, the other parts of its model and projectors beside it, or of a folder's files.

    Empty if they cannot be read.
    """
    try:
        files = sorted(path.iterdir() if path.is_dir() else _parts(path))[:MAX_FILES]
        states = [(str(file), file.stat()) for file in files if file.is_file()]
    except (OSError, ValueError):
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _parts(path: Path) -> Iterable[Path]:
    part = PART.search(path.stem)
    files = path.parent.glob(f"{escape(path.stem[: part.start()])}-?????-of-{part[1]}.gguf") if part else [path]
    return [*files, *(file for file in path.parent.glob("*.gguf") if MARK in file.name.lower())]


@lru_cache(maxsize=64)
def _files_digest(states: tuple[FileState, ...]) -> bytes:
    digest = hashlib.sha256()
    for name, num_bytes, _ in states:
        digest.update(f"{Path(name).name}\0{num_bytes}\0".encode())
        try:
            with Path(name).open("rb") as file:
                digest.update(file.read(WHOLE_BYTES if num_bytes <= WHOLE_BYTES else EDGE_BYTES))
                if num_bytes > WHOLE_BYTES:
                    file.seek(num_bytes - EDGE_BYTES)
                    digest.update(file.read(EDGE_BYTES))
        except OSError:
            digest.update(b"unreadable\0")
    return digest.digest()
