"""The manifest of a stored model: what its files are and where they come from, in `manifest.json` beside them."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from chat.model_store.errors import StoreError
from engine.api import ModelDescription

VERSION = 1
FILE_NAME = "manifest.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?(:[A-Za-z0-9][A-Za-z0-9._-]*)?")
PART = re.compile(r"-\d{5}-of-(\d{5})$")
"""How the name of a part of a GGUF model ends, before `.gguf`."""
MAX_NAME_CHARS = 200
MAX_MANIFEST_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a model. `path`: below the model's files, with `/`."""

    path: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from. `place`: a repository, or a path of this machine."""

    kind: str
    """hub, file, folder or ollama."""
    place: str
    revision: str = ""
    """The commit of a repository."""
    asked_revision: str = ""
    """The branch, tag or commit that was asked for."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A stored model."""

    name: str
    kind: str
    """What it is for: chat, embedding or reranker."""
    model_file: str
    """What is loaded: the path of a GGUF file, or empty for the whole folder."""
    files: tuple[StoredFile, ...]
    source: Source
    description: ModelDescription
    created_at: str
    """ISO 8601, UTC."""
    version: int = VERSION

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def source_text(self) -> str:
        """Where the model comes from, on one line."""
        source = self.source
        if source.kind == "hub":
            return f"{source.place} at {source.revision[:12]}"
        return f"{source.kind} {source.place}"

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def read(cls, file: Path) -> Manifest:
        """Read a manifest. Raises StoreError."""
        try:
            if file.stat().st_size > MAX_MANIFEST_BYTES:
                raise StoreError(f"{file} is larger than {MAX_MANIFEST_BYTES} bytes: it is no manifest of ours.")
            return cls._of(json.loads(file.read_bytes()))
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}.") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"{file} is damaged ({error}): remove its folder, or import the files in it again."
            ) from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Manifest:
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}, this installation knows {VERSION}")
        files = tuple(StoredFile(**file) for file in values["files"])
        for path in [file.path for file in files] + ([values["model_file"]] if values["model_file"] else []):
            path_check(path)
        datetime.fromisoformat(values["created_at"])
        source, description = Source(**values["source"]), ModelDescription(**values["description"])
        made = cls(**values | {"files": files, "source": source, "description": description})
        for part in (made, source, description, *files):
            _types_check(part)
        return made


def _types_check(part: Any) -> None:
    """Raise ValueError for a text or number of another type than its field has."""
    kinds = {"str": str, "int": int, "bool": bool, "dict[str, float]": dict}
    for one in dataclasses.fields(part):
        kind, value = kinds.get(str(one.type)), getattr(part, one.name)
        if kind is not None and type(value) is not kind:
            raise ValueError(f"{one.name} is {json.dumps(value)[:80]}")


def name_check(name: str) -> None:
    """Raise StoreError for a name that no model can have."""
    if len(name) > MAX_NAME_CHARS or not NAME.fullmatch(name):
        raise StoreError(
            f"{name[:MAX_NAME_CHARS]!r} cannot be a model's name: use letters, digits, '.', '_' and '-', at most one "
            f"'/' and then one ':', {MAX_NAME_CHARS} characters at most."
        )


def path_check(path: str) -> None:
    """Raise ValueError unless `path` stays below the folder that it is joined to."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or any(part in ("..", ".") for part in parts):
        raise ValueError(f"the path {path[:MAX_NAME_CHARS]!r} leaves the model's folder")
