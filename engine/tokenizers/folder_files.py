"""The files of a folder that say how its text is read: within bounds, and checked before the library is given them."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from engine.api.errors import ModelLoadError
from engine.tokenizers.gguf_tokenizer import check_lengths
from engine.tokenizers.gguf_vocabulary import is_charsmap

MAX_TOKENIZER_BYTES = 128 << 20
"""Four times those of Gemma's tokenizer.json."""
MAX_FILE_BYTES = 32 << 20


def read_text(path: Path) -> str:
    """Read a file of UTF-8. Raises ModelLoadError."""
    try:
        return _read(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ModelLoadError(f"{path}: is not UTF-8: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read an object of JSON; {} if there is no such file or it holds something else. Raises ModelLoadError."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Read a list of objects of JSON; [] if there is no such file or it holds something else. Raises ModelLoadError."""
    if not path.is_file():
        return []
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: is not JSON: {error}") from error
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def read_tokenizer(path: Path) -> bytes:
    """Return the contents of a tokenizer.json. Raises ModelLoadError for one that the library would not survive.

    It frees a unigram recursively, byte by byte, and looks up a map of characters without bounds.
    """

    def check(pairs: list[tuple[str, Any]]) -> None:
        # NOTE: sees what appears twice, too; the library may build both.
        for name, value in pairs:
            if name == "vocab" and isinstance(value, list):
                check_lengths([str(entry[0]) for entry in value if isinstance(entry, list) and entry], str(path))
            elif name == "precompiled_charsmap" and isinstance(value, str) and not _is_base64_charsmap(value):
                raise ModelLoadError(f"{path}: precompiled_charsmap is damaged: its trie does not lead to texts")

    contents = _read(path, MAX_TOKENIZER_BYTES)
    try:
        json.loads(contents.decode(), object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: is not JSON: {error}") from error
    return contents


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        if path.stat().st_size > max_bytes:
            raise ModelLoadError(f"{path}: larger than {max_bytes} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error}") from error


def _is_base64_charsmap(value: str) -> bool:
    try:
        charsmap = base64.b64decode(value)
    except (binascii.Error, ValueError):
        return False
    return not charsmap or is_charsmap(charsmap)
