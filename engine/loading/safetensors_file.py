"""Hugging Face folders: config.json and safetensors files, one or sharded.

Refuses pickled checkpoints. Nothing from a model folder is executed, and an index names files of the folder alone
(links are followed, as download caches have them). The library checks offsets and shapes against the file itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from engine.api.errors import ModelLoadError
from engine.loading.names import is_other_part
from engine.quantization.stored import StoredMatrix
from engine.ultravox_folder import AUDIO, TEXT, WHISPER, is_ultravox, part_folder

logger = logging.getLogger(__name__)

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Supported types: safetensors' name -> torch's name."""
MAX_JSON_BYTES = 32 << 20


class SafetensorsFolder:
    """The tensors of a folder's files by name, mapped and read on demand."""

    format = ""
    """How the weights are quantised."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path = path
        self.files = files
        self._open_files = ExitStack()
        self.by_name: dict[str, safe_open] = {}
        for file in files:
            try:
                handle = self._open_files.enter_context(safe_open(file, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise ModelLoadError(f"{file}: cannot be read as a safetensors file: {error}") from error
            for name in handle.keys():  # noqa: SIM118 (the handle is no mapping)
                if name in self.by_name:
                    raise ModelLoadError(f"{file}: tensor {name!r} appears twice in {path}")
                self.by_name[name] = handle

    @classmethod
    def open(cls, path: Path) -> SafetensorsFolder:
        """Find the files of a folder. Raises ModelLoadError for a pickled, empty or damaged one."""
        if (path / INDEX).is_file():
            return cls(path, _shards(path))
        if (path / SINGLE).is_file():
            return cls(path, [path / SINGLE])
        pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
        if pickles:
            raise ModelLoadError(
                f"{path / pickles[0]}: pickled checkpoints can run code and are never loaded; convert it to safetensors"
            )
        raise ModelLoadError(f"{path}: holds neither {SINGLE} nor {INDEX}")

    @property
    def names(self) -> list[str]:
        return list(self.by_name)

    def file_of(self, name: str) -> Path:
        """Return what errors about a tensor name: the folder."""
        return self.path

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor without reading it.

        Raises KeyError when absent, ModelLoadError for integers and the like.
        """
        dtype, shape = self.stored(name)
        if dtype not in DTYPES:
            raise ModelLoadError(
                f"{self.path}: tensor {name!r} has the dtype {dtype}, which config.json does not explain; "
                f"{', '.join(DTYPES.values())} can be served without a quantization_config"
            )
        return shape

    def tensor(self, name: str) -> torch.Tensor:
        """Read one tensor in its own dtype. Raises the errors of `shape`."""
        self.shape(name)
        return self.read(name)

    def stored(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the name of a tensor's dtype in the file, whatever it is, and the shape, without reading it."""
        try:
            part = self.by_name[name].get_slice(name)
        except SafetensorError as error:
            raise ModelLoadError(f"{self.path}: tensor {name!r} cannot be read: {error}") from error
        return part.get_dtype(), tuple(part.get_shape())

    def read(self, name: str) -> torch.Tensor:
        """Read one tensor of any dtype. Raises ModelLoadError."""
        try:
            return self.by_name[name].get_tensor(name)
        except SafetensorError as error:
            raise ModelLoadError(f"{self.path}: tensor {name!r} cannot be read: {error}") from error

    def matrix(self, name: str) -> StoredMatrix:
        """Read one tensor as stored; a vector is a matrix of one row. Raises the errors of `shape`."""
        values = self.tensor(name)
        return StoredMatrix.from_float(values if values.dim() == 2 else values[None]).named(
            f"{self.file_of(name)}: tensor {name!r}"
        )

    def outline(self, name: str) -> StoredMatrix:
        """Do as `matrix`, without data and without reading any. Raises the errors of `shape`."""
        shape, dtype = self.shape(name), getattr(torch, DTYPES[self.stored(name)[0]])
        return StoredMatrix.from_float(
            torch.empty(shape if len(shape) == 2 else (1, *shape), dtype=dtype, device="meta")
        )

    def take(self, other: SafetensorsFolder, names: Iterable[str]) -> None:
        """Take tensors of another folder, which is closed with this one. Raises ModelLoadError."""
        self._open_files.callback(other.close)
        for name in names:
            if name in self.by_name:
                raise ModelLoadError(f"{other.path}: tensor {name!r} is in {self.path} too, which names this folder")
            self.by_name[name] = other.by_name[name]
        self.files = [*self.files, *other.files]

    def close(self) -> None:
        """Unmap the files."""
        self._open_files.close()


def open_with_parts(path: Path) -> SafetensorsFolder:
    """Open a folder, with the tensors of the parts that a folder of Ultravox names. Raises ModelLoadError."""
    folder, values = SafetensorsFolder.open(path), read_object(path / "config.json")
    for part in (TEXT, AUDIO) if is_ultravox(values) else ():
        if any(name.startswith(part.prefix) for name in folder.names):
            continue
        place = part_folder(path, values, part)
        other, its_values = SafetensorsFolder.open(place), read_object(place / "config.json")
        names = [name for name in other.names if not is_other_part(name, its_values)]
        folder.take(other, [name for name in names if name.startswith(WHISPER)] if part is AUDIO else names)
    return folder


def read_part(path: Path, prefix: str | tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Read the tensors of a folder whose names begin so, or in one of several ways. Raises ModelLoadError."""
    folder = open_with_parts(path)
    try:
        names = [name for name in folder.names if name.startswith(prefix)]
        # NOTE: copies, since views would keep the files mapped.
        return {name: folder.tensor(name).clone() for name in names}
    finally:
        folder.close()


def read_config(path: Path) -> dict:
    """Read config.json, without the names of code in the folder, which is never run (`auto_map`).

    Raises ModelLoadError if the file is missing or not an object.
    """
    if not (path / "config.json").is_file():
        gguf = min(path.glob("*.gguf"), default=None)
        remedy = f"a GGUF file is named itself, as {gguf}" if gguf else "a folder of a model has one"
        raise ModelLoadError(f"{path}: holds no config.json; {remedy}")
    values = read_object(path / "config.json")
    if values.pop("auto_map", None) is not None:
        logger.info("%s: names code of its own (auto_map), which is never run", path / "config.json")
    return values


def _shards(path: Path) -> list[Path]:
    weight_map = read_object(path / INDEX).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(name, str) for name in weight_map.values())
    ):
        raise ModelLoadError(f"{path / INDEX}: weight_map must map tensor names to file names")
    files = []
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelLoadError(
                f"{path / INDEX}: {name[:200]!r} is not the name of a safetensors file in the same folder"
            )
        files.append(path / name)
        if not files[-1].is_file():  # opening a pipe would wait for ever
            raise ModelLoadError(f"{path / INDEX}: names {name[:200]!r}, but the folder has no such file")
    return files


def read_object(path: Path) -> dict:
    """Read a JSON object. Raises ModelLoadError."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelLoadError(f"{path}: larger than {MAX_JSON_BYTES} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: must hold a JSON object")
    return values
