"""Keep what was fetched in files, by tenant and URL. Nothing is used without asking its server whether it has changed.

An entry is one file: a line of JSON, then the bytes. All web processes of a machine share the folder. What was used
longest ago goes first as the folder grows beyond its bytes or entries, and whatever has not been used for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 10_000
MAX_UNUSED_S = 86_400
MAX_VALIDATOR_CHARS = 512
MAX_LINE_BYTES = 32 << 10
PART = ".part"
"""How the name of a file ends that is being written."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept answer: its bytes, where they came from after redirects, and what its server tells versions apart by."""

    url: str
    etag: str
    last_modified: str
    data: bytes
    may_be_kept: bool = True
    """Its server has not said `no-store`."""

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that ask for it only if it has changed."""
        named = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: value for name, value in named.items() if value}


class MediaCache:
    """A folder of kept answers of at most `max_bytes`; 0: none are kept. Calls block: they belong into a thread."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, tenant: str, url: str) -> Kept | None:
        """Return what is kept, whole and unchanged, or None."""
        if not self._max_bytes:
            return None
        path = self._path(tenant, url)
        try:
            with path.open("rb") as file:
                head = json.loads(file.readline(MAX_LINE_BYTES))
                data = file.read()
            os.utime(path)
            kept = Kept(head["url"], head["etag"], head["last_modified"], data)
            return kept if hashlib.sha256(data).hexdigest() == head["sha256"] else None
        except (OSError, ValueError, KeyError, TypeError):  # none, or one that is broken
            return None

    def put(self, tenant: str, url: str, kept: Kept) -> None:
        """Keep an answer, if its server tells versions apart. A full disk is no error."""
        is_named = 0 < len(kept.etag) + len(kept.last_modified) <= MAX_VALIDATOR_CHARS
        if not is_named or not 0 < len(kept.data) <= self._max_bytes:
            return
        head = {
            "url": kept.url,
            "etag": kept.etag,
            "last_modified": kept.last_modified,
            "sha256": hashlib.sha256(kept.data).hexdigest(),
        }
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._trim(len(kept.data))
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=PART, delete=False) as file:
                try:
                    file.write(json.dumps(head).encode() + b"\n" + kept.data)
                    file.close()
                    os.replace(file.name, self._path(tenant, url))
                except OSError:
                    os.unlink(file.name)

    def drop(self, tenant: str, url: str) -> None:
        self._path(tenant, url).unlink(missing_ok=True)

    def _trim(self, num_bytes: int) -> None:
        """Remove what is too old, and the oldest until `num_bytes` have room."""
        entries = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):  # another process has just removed it
                status = entry.stat()
                entries.append((status.st_mtime, status.st_size, entry.path))
        entries.sort()
        total, count = sum(size for _, size, _ in entries) + num_bytes, len(entries) + 1
        oldest = time.time() - MAX_UNUSED_S
        for used_at, size, path in entries:
            if total <= self._max_bytes and count <= MAX_ENTRIES and used_at >= oldest:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total, count = total - size, count - 1

    def _path(self, tenant: str, url: str) -> Path:
        return self._folder / hashlib.sha256(json.dumps([tenant, url]).encode()).hexdigest()
