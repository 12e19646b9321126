"""Write small GGUF files for tests, including damaged ones: every field can be overridden."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

STRING, ARRAY, UINT32, UINT64, FLOAT32, BOOL = 8, 9, 4, 10, 6, 7


def string(text: str | bytes, claimed_length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if claimed_length is None else claimed_length) + raw


def string_array(texts: list[str], claimed_count: int | None = None) -> bytes:
    count = len(texts) if claimed_count is None else claimed_count
    return struct.pack("<IQ", STRING, count) + b"".join(string(text) for text in texts)


@dataclass
class GgufContents:
    """metadata: (key, value type, encoded value)   tensors: (name, dimensions innermost first, type id, offset)."""

    metadata: list[tuple[str, int, bytes]] = field(default_factory=list)
    tensors: list[tuple[str, list[int], int, int]] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    metadata_count: int | None = None

    def encode(self) -> bytes:
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        metadata_count = len(self.metadata) if self.metadata_count is None else self.metadata_count
        parts = [self.magic, struct.pack("<IQQ", self.version, tensor_count, metadata_count)]
        parts += [string(key) + struct.pack("<I", kind) + value for key, kind, value in self.metadata]
        for name, dimensions, type_id, offset in self.tensors:
            shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
            parts.append(string(name) + shape + struct.pack("<IQ", type_id, offset))
        head = b"".join(parts)
        return head + bytes(-len(head) % 32) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encode())
        return path
