"""What a request had beside text, for the request log: how many images, sounds, videos and files, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.api import GenerationRequest

CONTENTS = {"image": "data", "audio": "data", "video": "data", "file": "file"}
"""The kinds of parts that a worker gets, and where they have their contents."""


def media_kept(request: GenerationRequest) -> dict[str, dict[str, int]]:
    """Return number and bytes of what the messages have, or is to be written down, by kind; empty for text alone."""
    found = [media for message in request.messages for media in _media(message.get("content"))]
    if request.speech is not None:
        found.append(("audio", _num_bytes(request.speech.data)))
    kept: dict[str, dict[str, int]] = {}
    for kind, num_bytes in found:
        sums = kept.setdefault(kind, {"number": 0, "bytes": 0})
        sums["number"] += 1
        sums["bytes"] += num_bytes
    return kept


def _media(content: Any) -> Iterator[tuple[str, int]]:
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in CONTENTS:
            held = part.get(CONTENTS[kind])
            yield kind, _num_bytes(held.get("file_data") if isinstance(held, dict) else held)


def _num_bytes(contents: Any) -> int:
    """Return the bytes of contents: as they are, or in base64, behind the head of a data: URL."""
    if isinstance(contents, bytes):
        return len(contents)
    if not isinstance(contents, str):
        return 0
    data = contents[contents.find(",") + 1 :] if contents.startswith("data:") else contents
    return len(data) * 3 // 4 - data[-2:].count("=")
