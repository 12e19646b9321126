"""GGUF files: header, metadata and tensor table, read through a private memory map.

Every count, length, shape and offset is checked against the size of the file, in Python's unbounded integers, before it
is used: a hostile or truncated file raises ModelLoadError. Imports numpy for tensors only, as tokenizers read metadata.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.api.errors import ModelLoadError

if TYPE_CHECKING:
    import numpy as np

MetadataValue = bool | int | float | str | list
T = TypeVar("T")

MAX_DIMENSIONS = 4
MAX_KEYS, MAX_TENSORS = 1 << 16, 1 << 20
MAX_VALUES = 1 << 23
"""Entries of all arrays of the metadata together, some 40 bytes each in memory; large vocabularies have a million."""
MAX_NAME = 256
"""Bytes of a tensor's name; the format allows 64."""
SHOWN = 80
"""Characters of a value or key of the file in an error."""
MAX_ARRAY_NESTING = 2
MAX_ALIGNMENT = 1 << 20
HEAD_BYTES = 32 << 20
"""Bytes that `read_metadata` maps first; the metadata of most models, vocabulary included, is smaller."""
STRING, ARRAY, BOOL = 8, 9, 7

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}
"""Type id -> `struct` format of numbers."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """A storage type: every `block_size` elements of a row take `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int


BLOCK_TYPES: dict[int, BlockType] = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    16: BlockType("IQ2_XXS", 256, 66),
    17: BlockType("IQ2_XS", 256, 74),
    18: BlockType("IQ3_XXS", 256, 98),
    19: BlockType("IQ1_S", 256, 50),
    20: BlockType("IQ4_NL", 32, 18),
    21: BlockType("IQ3_S", 256, 110),
    22: BlockType("IQ2_S", 256, 82),
    23: BlockType("IQ4_XS", 256, 136),
    29: BlockType("IQ1_M", 256, 56),
    30: BlockType("BF16", 1, 2),
    34: BlockType("TQ1_0", 256, 54),
    35: BlockType("TQ2_0", 256, 66),
    39: BlockType("MXFP4", 32, 17),
    40: BlockType("NVFP4", 64, 36),
}
SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
"""The name of one part of a split file; parts count from 1 here and from 0 in `split.no`."""
ONE_MODEL = "all parts must be of one model: fetch them again"


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One stored tensor. shape: outermost first; data: uint8 (rows, bytes per row), a view of the file at `path`."""

    path: Path
    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The metadata and the tensor views of one file, or of all parts of a split one (`files`, the first first)."""

    path: Path
    metadata: dict[str, MetadataValue]
    tensors: dict[str, GgufTensor]
    files: tuple[Path, ...]

    @classmethod
    def open(cls, path: Path | str) -> GgufFile:
        """Map and check a file, with the other parts if it is the first of a split one.

        Raises ModelLoadError if a file is missing, truncated, inconsistent or of unknown types.
        """
        path = Path(path)
        metadata, tensors = _read(path)
        files = _parts(path, metadata)
        total = metadata.get("split.tensors.count")
        for number, file in enumerate(files[1:], 1):
            part, more = _read(file)
            _check_part(file, part, (number, len(files), total))
            for name in tensors.keys() & more.keys():
                raise ModelLoadError(f"{file}: tensor {name!r} is in an earlier part too; {ONE_MODEL}")
            tensors |= more
        if len(files) > 1 and total not in (None, len(tensors)):
            raise ModelLoadError(
                f"{path}: its {len(files)} parts hold {len(tensors)} tensors, but should {str(total)[:SHOWN]}; "
                f"{ONE_MODEL}"
            )
        return cls(path, metadata, tensors, files)

    @staticmethod
    def read_metadata(path: Path, before: str = "") -> dict[str, MetadataValue]:
        """Return the metadata alone, or what stands before the first key that begins so. Raises ModelLoadError.

        Maps only the head of the file: helper processes have a memory limit that counts maps.
        """

        def read(reader: _Reader) -> dict[str, MetadataValue]:
            return reader.metadata(reader.header()[1], before)

        return _from_head(path, read)

    @staticmethod
    def read_shapes(path: Path) -> tuple[dict[str, MetadataValue], dict[str, tuple[int, ...]]]:
        """Return the metadata and the shapes of the tensors, outermost first, by the head alone. Raises ModelLoadError.

        Whether the file holds the tensors shows when it is opened.
        """

        def read(reader: _Reader) -> tuple[dict[str, MetadataValue], dict[str, tuple[int, ...]]]:
            tensor_count, metadata_count = reader.header()
            return reader.metadata(metadata_count), reader.shapes(tensor_count)

        return _from_head(path, read)


def _from_head(path: Path, read: Callable[[_Reader], T]) -> T:
    """Read the head of a file, and more of it where that does not hold what is read. Raises ModelLoadError."""
    head_bytes = HEAD_BYTES
    while True:
        contents = _mapped(path, head_bytes)
        try:
            return read(_Reader(path, contents))
        except ModelLoadError:
            if len(contents) < head_bytes:
                raise
        head_bytes *= 4


def _read(path: Path) -> tuple[dict[str, MetadataValue], dict[str, GgufTensor]]:
    reader = _Reader(path, _mapped(path))
    tensor_count, metadata_count = reader.header()
    metadata = reader.metadata(metadata_count)
    return metadata, reader.tensors(tensor_count, metadata.get("general.alignment", 32))


def _parts(path: Path, metadata: dict[str, MetadataValue]) -> tuple[Path, ...]:
    """Return the files of a model by its first one. Raises ModelLoadError if it is not the first or one is missing."""
    count, number = metadata.get("split.count", 0), metadata.get("split.no", 0)
    if type(count) is not int or type(number) is not int:
        raise ModelLoadError(
            f"{path}: split.count and split.no must be integers, got {str(count)[:SHOWN]!r} and {str(number)[:SHOWN]!r}"
        )
    if count <= 1:
        return (path,)
    name = SPLIT_NAME.fullmatch(path.name)
    if name is None or (int(name[2]), int(name[3])) != (number + 1, count):
        raise ModelLoadError(
            f"{path}: is part {number + 1} of {count}, so its name must end in -{number + 1:05}-of-{count:05}.gguf"
        )
    if number != 0:
        raise ModelLoadError(
            f"{path}: is part {number + 1} of {count}: name the first, {name[1]}-00001-of-{name[3]}.gguf"
        )
    files = []
    for part in range(1, count + 1):
        files.append(path.with_name(f"{name[1]}-{part:05}-of-{count:05}.gguf"))
        if not files[-1].is_file():
            raise ModelLoadError(f"{files[-1]}: part {part} of {count} is missing; all parts must lie in one folder")
    return tuple(files)


def _check_part(file: Path, metadata: dict[str, MetadataValue], expected: tuple[int, int, object]) -> None:
    """Raise ModelLoadError if a part does not say that it has this number, of so many parts and tensors."""
    number, count = metadata.get("split.no"), metadata.get("split.count")
    total = metadata.get("split.tensors.count", expected[2])
    if (number, count) != expected[:2]:
        raise ModelLoadError(
            f"{file}: must have split.no {expected[0]} and split.count {expected[1]}, got {str(number)[:SHOWN]} and "
            f"{str(count)[:SHOWN]}; {ONE_MODEL}"
        )
    if total != expected[2]:
        raise ModelLoadError(
            f"{file}: is of a model of {str(total)[:SHOWN]} tensors, the first part of {str(expected[2])[:SHOWN]}; "
            f"{ONE_MODEL}"
        )


def _mapped(path: Path, max_bytes: int = sys.maxsize) -> mmap.mmap:
    """Map the first bytes of a file. Raises ModelLoadError."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise ModelLoadError(f"{path}: cannot be read as a GGUF file: it is no file")
    try:
        with path.open("rb") as file:
            num_bytes = min(max_bytes, os.fstat(file.fileno()).st_size)
            # NOTE: a private copy-on-write map gives writable views, which torch needs; nothing is ever written back.
            return mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_COPY)
    except FileNotFoundError as error:
        raise ModelLoadError(
            f"{path}: there is no such file or folder; a model is a GGUF file or a Hugging Face folder on this "
            "machine, nothing is fetched by its name"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: cannot be read as a GGUF file: {error}") from error


class _Reader:
    """A cursor over the mapped file that never reads past its end."""

    def __init__(self, path: Path, contents: mmap.mmap) -> None:
        self._path = path
        self._contents = contents
        self._size = len(contents)
        self._position = 0
        self._what = "header"
        self._num_values = 0

    def header(self) -> tuple[int, int]:
        """Return the number of tensors and of metadata entries."""
        if self._take(4) != b"GGUF":
            raise self._error("not a GGUF file (its first four bytes are not GGUF)")
        version = self._integer(4)
        if version not in (2, 3):
            raise self._error(f"GGUF version must be 2 or 3 (little-endian), got {version}")
        tensor_count, metadata_count = self._integer(8), self._integer(8)
        self._check_count(tensor_count, 24, "the tensor count", MAX_TENSORS)
        self._check_count(metadata_count, 13, "the metadata count", MAX_KEYS)
        return tensor_count, metadata_count

    def metadata(self, count: int, before: str = "") -> dict[str, MetadataValue]:
        """Read `count` entries, or those before the first key that begins with `before`."""
        entries: dict[str, MetadataValue] = {}
        for index in range(count):
            self._what = f"metadata entry {index}"
            key = self._string()
            if before and key.startswith(before):
                break
            if key in entries:
                raise self._error(f"metadata key {key[:SHOWN]!r} appears twice")
            self._what = f"metadata key {key[:SHOWN]!r}"
            entries[key] = self._value(self._integer(4), nesting=0)
        return entries

    def tensors(self, count: int, alignment: MetadataValue) -> dict[str, GgufTensor]:
        """Read the table, then cut the data section into views.

        Tensors follow each other in the order of the table, each at the next multiple of the alignment, as llama.cpp
        wants it too, and the file ends with the last one or with the padding behind it: a wrong type or shape in the
        table then shows in the place of what follows.
        """
        if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._error(
                f"general.alignment must be a power of two up to {MAX_ALIGNMENT}, got {str(alignment)[:SHOWN]!r}"
            )
        table = [self._tensor_entry(index) for index in range(count)]
        data_start = -(-self._position // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        expected = end = 0
        for name, shape, block_type, offset in table:
            if name in tensors:
                raise self._error(f"tensor {name!r} appears twice")
            tensors[name] = tensor = self._view(name, shape, block_type, data_start, offset)
            if offset != expected:
                raise self._error(
                    f"tensor {name!r} begins at byte {offset} of the data, but those before it end at {expected}: "
                    "the table of tensors is damaged"
                )
            end = offset + tensor.data.nbytes
            expected = -(-end // alignment) * alignment
        if self._size > data_start + expected:
            raise self._error(
                f"has {self._size - data_start} bytes of data, but the last tensor of its table, "
                f"{table[-1][0] if table else None!r}, ends at {end}: the table of tensors is damaged"
            )
        return tensors

    def shapes(self, count: int) -> dict[str, tuple[int, ...]]:
        """Read the table of tensors alone: their shapes by their names."""
        return {name: shape for name, shape, *_ in (self._tensor_entry(index) for index in range(count))}

    def _tensor_entry(self, index: int) -> tuple[str, tuple[int, ...], BlockType, int]:
        self._what = f"tensor entry {index}"
        name = self._string()
        if len(name) > MAX_NAME:
            raise self._error(f"{self._what} has a name of {len(name)} characters; at most {MAX_NAME} can be")
        self._what = f"tensor {name!r}"
        num_dimensions = self._integer(4)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._error(f"tensor {name!r} must have 1 to {MAX_DIMENSIONS} dimensions, got {num_dimensions}")
        shape = tuple(self._integer(8) for _ in range(num_dimensions))[::-1]
        type_id, offset = self._integer(4), self._integer(8)
        if type_id not in BLOCK_TYPES:
            known = ", ".join(block_type.name for block_type in BLOCK_TYPES.values())
            raise self._error(f"tensor {name!r} has the unknown storage type {type_id}; supported are {known}")
        return name, shape, BLOCK_TYPES[type_id], offset

    def _view(
        self, name: str, shape: tuple[int, ...], block_type: BlockType, data_start: int, offset: int
    ) -> GgufTensor:
        if min(shape) < 1 or shape[-1] % block_type.block_size:
            raise self._error(f"tensor {name!r} of type {block_type.name} cannot have the shape {shape}")
        row_bytes = shape[-1] // block_type.block_size * block_type.block_bytes
        num_rows = prod(shape[:-1])
        start, num_bytes = data_start + offset, num_rows * row_bytes
        if start + num_bytes > self._size:
            raise self._error(
                f"tensor {name!r} of shape {shape} needs bytes {start} to {start + num_bytes}, "
                f"but the file has {self._size}: it is truncated or damaged"
            )
        import numpy as np  # imported late: tokenizers read only metadata

        data = np.frombuffer(self._contents, dtype=np.uint8, count=num_bytes, offset=start).reshape(num_rows, row_bytes)
        return GgufTensor(self._path, name, shape, block_type.name, data)

    def _value(self, type_id: int, nesting: int) -> MetadataValue:
        if type_id == STRING:
            return self._string()
        if type_id == ARRAY:
            return self._array(nesting)
        if type_id not in SCALARS:
            raise self._error(f"{self._what} has the unknown value type {type_id}")
        return self._numbers(SCALARS[type_id], 1)[0]

    def _array(self, nesting: int) -> list:
        if nesting >= MAX_ARRAY_NESTING:
            raise self._error(f"{self._what} nests arrays deeper than {MAX_ARRAY_NESTING}")
        type_id, count = self._integer(4), self._integer(8)
        least_bytes = struct.calcsize(f"<{SCALARS[type_id]}") if type_id in SCALARS else 8 if type_id == STRING else 12
        self._check_count(count, least_bytes, self._what, MAX_VALUES - self._num_values)
        self._num_values += count
        if type_id in SCALARS:
            return self._numbers(SCALARS[type_id], count)
        if type_id == STRING:
            return self._strings(count)
        return [self._value(type_id, nesting + 1) for _ in range(count)]

    def _numbers(self, kind: str, count: int) -> list:
        return list(struct.unpack(f"<{count}{kind}", self._take(count * struct.calcsize(f"<{kind}"))))

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        """Read many strings in one loop without calls of our own: a vocabulary has hundreds of thousands."""
        contents, size, position = self._contents, self._size, self._position
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                end = position + 8 + length_at(contents, position)[0]
                if end > size:
                    raise self._truncated()
                strings.append(contents[position + 8 : end].decode())
                position = end
        except struct.error as error:
            raise self._truncated() from error
        except UnicodeDecodeError as error:
            raise self._error(f"{self._what} holds a string that is not UTF-8") from error
        self._position = position
        return strings

    def _integer(self, num_bytes: int) -> int:
        return int.from_bytes(self._take(num_bytes), "little")

    def _take(self, num_bytes: int) -> bytes:
        end = self._position + num_bytes
        if end > self._size:
            raise self._truncated()
        taken = self._contents[self._position : end]
        self._position = end
        return taken

    def _check_count(self, count: int, least_bytes: int, what: str, most: int) -> None:
        if count * least_bytes > self._size - self._position:
            raise self._error(f"{what} claims {count} entries, more than the file can hold")
        if count > most:
            raise self._error(f"{what} claims {count} entries; at most {most} can be read")

    def _truncated(self) -> ModelLoadError:
        return self._error(
            f"{self._what} runs past the end of the file ({self._size} bytes): it is truncated or damaged"
        )

    def _error(self, text: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path}: {text}")
