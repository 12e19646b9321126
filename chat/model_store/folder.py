"""The store: a folder with a folder for each model, `<name>/manifest.json` and `<name>/files/…`.

What is not finished lies below `.work`: `new` for models that are being added, `gone` for those that are being removed,
`locks`. A model appears, and goes, by one rename, so no half of one is ever seen. Several processes may use a store.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

from chat.model_store.errors import StoreError
from chat.model_store.manifest import FILE_NAME, Manifest, Source, StoredFile, name_check
from engine.api import ModelDescription

FILES, WORK = "files", ".work"
NEW, GONE, LOCKS = f"{WORK}/new", f"{WORK}/gone", f"{WORK}/locks"
PULL = "pull"
"""A file beside the files of a pull that is not finished, which says what is pulled."""


class ModelStore:
    """The models below a folder, which need not exist. Every method may raise StoreError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Return the names of all models, sorted."""
        with self._used():
            if not self.root.is_dir():
                return []
            folders = [entry for entry in self.root.iterdir() if not entry.name.startswith(".")]
            return sorted(unquote(folder.name) for folder in folders if (folder / FILE_NAME).is_file())

    def unfinished(self) -> list[str]:
        """Return the names of pulls that can go on."""
        with self._used():
            return sorted(unquote(stamp.parent.name) for stamp in self.root.glob(f"{NEW}/*/{PULL}"))

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
        with self._used():
            return (self._folder(name) / FILE_NAME).is_file()

    def get(self, name: str) -> Manifest:
        """Return the manifest of a model."""
        if not self.has(name):
            known = ", ".join(self.names()) or "none yet"
            raise StoreError(f"There is no model {name!r} in {self.root}. Stored are: {known}.")
        file = self._folder(name) / FILE_NAME
        manifest = Manifest.read(file)
        if manifest.name != name:
            raise StoreError(f"{file} is that of {manifest.name!r}: give its folder that name, or remove it.")
        return manifest

    def model_path(self, name: str) -> Path:
        """Return what the engine loads: a GGUF file or a folder."""
        return self._folder(name) / FILES / self.get(name).model_file

    def holds(self, name: str) -> bool:
        """Return True if there is anything to remove: a model, damaged or not, or what an unfinished pull has left."""
        with self._used():
            return any((self.root / place / _folder_name(name)).is_dir() for place in ("", NEW, GONE))

    def name_of(self, path: Path) -> str | None:
        """Return the name of the model whose files `path` belongs to, None for a path outside the store."""
        if not path.is_relative_to(self.root) or path == self.root:
            return None
        folder = path.relative_to(self.root).parts[0]
        return None if folder.startswith(".") else unquote(folder)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep other processes from adding or removing this model; refuse if one does so already."""
        place = self.root / LOCKS / _folder_name(name)
        name_check(name)
        with self._used():
            place.parent.mkdir(parents=True, exist_ok=True)
            file = place.open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(f"Another process adds or removes {name!r}: wait for it, or stop it.") from error
            yield

    def begin(self, name: str, pull: str = "") -> Path:
        """Return an empty folder for the files of a new model, or what an earlier try of the same pull has left in it.

        `pull` says what is pulled. Hold the lock. Refuse a name that is taken, also by another unfinished pull.
        """
        if self.has(name):
            raise StoreError(f"There is a model {name!r} already: remove it first, or choose another name (--name).")
        folder = self.root / NEW / _folder_name(name)
        stamp = folder / PULL
        with self._used():
            left = stamp.read_text() if stamp.is_file() else ""
            if left and left != pull:
                raise StoreError(
                    f"A pull of {left} as {name!r} is not finished: finish it, remove it (`manage.py model rm {name}`) "
                    "or choose another name (--name)."
                )
            if not left:
                shutil.rmtree(folder, ignore_errors=True)
                (folder / FILES).mkdir(parents=True)
                if pull:
                    stamp.write_text(pull)
        return folder / FILES

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
        """Add the model whose files lie in its new folder; `hashes` are their SHA-256 by path. Hold the lock."""
        folder = self.root / NEW / _folder_name(name)
        with self._used():
            paths = sorted(relative_files(folder / FILES))
            files = tuple(StoredFile(path, (folder / FILES / path).stat().st_size, hashes[path]) for path in paths)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = Manifest(name, kind, model_file, files, source, description, now)
            (folder / FILE_NAME).write_text(manifest.dump())
            for beside in folder.iterdir():
                if beside.name not in (FILES, FILE_NAME):
                    shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
            for path in (folder / FILE_NAME, *(folder / FILES / path for path in paths)):
                _sync(path)
            self._remove_folder(name)  # one without a manifest
            folder.rename(self._folder(name))
            _sync(self.root)
        return manifest

    def remove(self, name: str) -> int:
        """Remove a model, or what is left of an unfinished pull or removal of it; return the bytes of its files."""
        with self.locked(name), self._used():
            places = [self._folder(name), self.root / NEW / _folder_name(name), self.root / GONE / _folder_name(name)]
            if not any(place.is_dir() for place in places):
                self.get(name)  # raises
            num_bytes = sum((place / path).stat().st_size for place in places for path in relative_files(place))
            self.discard(name)
            self._remove_folder(name)
        return num_bytes

    def discard(self, name: str) -> None:
        """Remove what an unfinished pull, import or removal of a model has left. Hold the lock."""
        for place in (NEW, GONE):
            shutil.rmtree(self.root / place / _folder_name(name), ignore_errors=True)

    def copy(self, name: str, target: str) -> Manifest:
        """Add a model under another name, with the same files: hard links, or copies on other file systems."""
        manifest = self.get(name)
        with self.locked(target):
            folder = self.begin(target)
            try:
                self.take([(file.path, self._folder(name) / FILES / file.path) for file in manifest.files], folder)
                return self.finish(
                    target,
                    kind=manifest.kind,
                    model_file=manifest.model_file,
                    source=manifest.source,
                    description=manifest.description,
                    hashes={file.path: file.sha256 for file in manifest.files},
                )
            finally:
                self.discard(target)

    def take(self, files: Iterable[tuple[str, Path]], folder: Path) -> None:
        """Bring files into a folder under relative paths, by hard links or copies."""
        for path, origin in files:
            target = folder / path
            try:
                real = origin.resolve(strict=True)
                num_bytes = real.stat().st_size
                real.open("rb").close()
            except OSError as error:
                raise StoreError(f"{origin} cannot be read: {error.strerror}.") from error
            with self._used():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(real, target)
                except OSError:
                    room_check(folder, num_bytes)
                    shutil.copyfile(real, target)

    def damaged(self, name: str) -> list[str]:
        """Read all files of a model and return sentences about those that are not as they were stored."""
        found = []
        with self._used():
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
        folder, gone = self._folder(name), self.root / GONE / _folder_name(name)
        if folder.is_dir():
            shutil.rmtree(gone, ignore_errors=True)
            gone.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(gone)
            shutil.rmtree(gone)

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """Turn what the system refuses into a StoreError."""
        try:
            yield
        except OSError as error:
            raise store_error(self.root, error) from error


def store_error(root: Path, error: OSError) -> StoreError:
    """Say what the system refused in a store, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"The disk of {root} is full: free some space, or set LIGHTCONE_MODEL_STORE to another disk.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreError(
            f"{error.filename or root} cannot be used ({error.strerror}): give this user access to the store {root}, "
            "or set LIGHTCONE_MODEL_STORE to another folder."
        )
    return StoreError(f"The store {root} cannot be used: {error.strerror or error}.")


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
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Write a file or the entries of a folder through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folder_name(name: str) -> str:
    """Return the folder of a name: one level, as `/` and `:` are escaped."""
    return quote(name, safe="")
