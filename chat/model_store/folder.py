"""The store: a folder with a folder for each model, `<name>/manifest.json` and `<name>/files/…`.

What is not finished lies below `.partial`. A model appears, and goes, by one rename, so no half of one is ever seen.
Several processes may use a store at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

from chat.model_store.errors import StoreError
from chat.model_store.manifest import FILE_NAME, Manifest, Source, StoredFile, name_check
from engine.api import ModelDescription

FILES, PARTIAL = "files", ".partial"
BLOCK_BYTES = 1 << 20


class ModelStore:
    """The models below a folder, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Return the names of all models, sorted."""
        if not self.root.is_dir():
            return []
        folders = (entry for entry in self.root.iterdir() if not entry.name.startswith("."))
        return sorted(unquote(folder.name) for folder in folders if (folder / FILE_NAME).is_file())

    def all(self) -> list[Manifest | StoreError]:
        """Return the manifests of all models, by name, and in place of a damaged one its error."""
        found: list[Manifest | StoreError] = []
        for name in self.names():
            try:
                found.append(self.get(name))
            except StoreError as error:
                found.append(error)
        return found

    def has(self, name: str) -> bool:
        return (self._folder(name) / FILE_NAME).is_file()

    def get(self, name: str) -> Manifest:
        """Return the manifest of a model. Raises StoreError."""
        if not self.has(name):
            known = ", ".join(self.names()) or "none yet"
            raise StoreError(f"There is no model {name!r} in {self.root}. Stored are: {known}.")
        return Manifest.read(self._folder(name) / FILE_NAME)

    def model_path(self, name: str) -> Path:
        """Return what the engine loads: a GGUF file or a folder. Raises StoreError."""
        return self._folder(name) / FILES / self.get(name).model_file

    def partial(self, name: str) -> Path:
        """Return a folder for the files of a model that is being fetched; it is kept until it is finished."""
        folder = self.root / PARTIAL / _folder_name(name) / FILES
        self._make(folder)
        return folder

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep other processes from adding or removing this model. Raises StoreError if one does so already."""
        self._make(self.root / PARTIAL)
        with (self.root / PARTIAL / f"{_folder_name(name)}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(f"Another process adds or removes {name!r}: wait for it, or stop it.") from error
            yield

    def finish(
        self,
        name: str,
        *,
        kind: str,
        model_file: str,
        source: Source,
        description: ModelDescription,
        hashes: dict[str, str],
    ) -> Manifest:
        """Add the model whose files lie in its partial folder; `hashes` are their SHA-256 by path."""
        partial = self.partial(name)
        files = tuple(
            StoredFile(path, (partial / path).stat().st_size, hashes[path]) for path in sorted(relative_files(partial))
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(name, kind, model_file, files, source, description, now)
        with self._writing():
            written = partial.parent / FILE_NAME
            with written.open("w") as target:
                target.write(manifest.dump())
                target.flush()
                os.fsync(target.fileno())
            if self.has(name):
                self._remove_folder(name)
            partial.parent.rename(self._folder(name))
        return manifest

    def remove(self, name: str) -> int:
        """Remove a model and what is left of a pull of it; return the bytes of its files. Raises StoreError."""
        name_check(name)
        with self.locked(name), self._writing():
            num_bytes = self.discard(name)
            if not self.has(name):
                if not num_bytes:
                    self.get(name)  # raises
                return num_bytes
            with contextlib.suppress(StoreError):  # a damaged manifest
                num_bytes += self.get(name).num_bytes
            self._remove_folder(name)
        return num_bytes

    def discard(self, name: str) -> int:
        """Remove what an unfinished pull or import of a model has left; return its bytes."""
        folder = self.root / PARTIAL / _folder_name(name)
        num_bytes = sum((folder / path).stat().st_size for path in relative_files(folder))
        shutil.rmtree(folder, ignore_errors=True)
        return num_bytes

    def copy(self, name: str, target: str) -> Manifest:
        """Add a model under another name, with the same files: hard links, or copies on other file systems."""
        manifest = self.get(name)
        with self.locked(target):
            if self.has(target):
                raise StoreError(f"There is a model {target!r} already: remove it first, or choose another name.")
            folder = self.partial(target)
            self.take([(file.path, self._folder(name) / FILES / file.path) for file in manifest.files], folder)
            return self.finish(
                target,
                kind=manifest.kind,
                model_file=manifest.model_file,
                source=replace(manifest.source, kind="copy", place=name),
                description=manifest.description,
                hashes={file.path: file.sha256 for file in manifest.files},
            )

    def take(self, files: Iterable[tuple[str, Path]], folder: Path) -> None:
        """Bring files into a folder under relative paths, by hard links or copies. Raises StoreError."""
        for path, origin in files:
            target = folder / path
            with self._writing():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                real = origin.resolve()
                try:
                    os.link(real, target)
                except OSError:
                    room_check(folder, real.stat().st_size)
                    shutil.copyfile(real, target)

    def damaged(self, name: str) -> list[str]:
        """Read all files of a model and return sentences about those that are not as they were stored."""
        found = []
        for file in self.get(name).files:
            place = self._folder(name) / FILES / file.path
            if not place.is_file():
                found.append(f"{file.path} is missing.")
            elif (num_bytes := place.stat().st_size) != file.num_bytes:
                found.append(f"{file.path} has {num_bytes:,} bytes instead of {file.num_bytes:,}.")
            elif sha256_of(place) != file.sha256:
                found.append(f"{file.path} has other contents than when it was stored.")
        return found

    def _folder(self, name: str) -> Path:
        name_check(name)
        return self.root / _folder_name(name)

    def _remove_folder(self, name: str) -> None:
        gone = self.root / PARTIAL / f"{_folder_name(name)}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        self._make(gone.parent)
        self._folder(name).rename(gone)
        shutil.rmtree(gone)

    def _make(self, folder: Path) -> None:
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreError(
                    f"The disk of {self.root} is full: free some space, or set LIGHTCONE_MODEL_STORE to another disk."
                ) from error
            raise StoreError(f"The store {self.root} cannot be written: {error.strerror}.") from error


def room_check(folder: Path, num_bytes: int) -> None:
    """Raise StoreError if a folder's disk has less room than that."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise StoreError(
            f"{num_bytes:,} bytes are needed and the disk of {folder} has {free:,} left: free some space, or set "
            "LIGHTCONE_MODEL_STORE to another disk."
        )


def relative_files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def sha256_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _folder_name(name: str) -> str:
    """Return the folder of a name: one level, as `/` and `:` are escaped."""
    return quote(name, safe="")
