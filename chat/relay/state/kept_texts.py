"""What a run was asked and answered, for the request log of projects that keep texts.

The process that ends the run packs it once, from the request that it has and the events that it has written, so that a
client that leaves changes nothing. Media are replaced by their kind, size and hash, prompts of token ids by their
number, as nothing could redact them, and long texts are cut.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from engine.api import Delta, Event, GenerationRequest, SegmentSpoken

DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.+-]{1,100}){0,4},", re.ASCII)
MEDIA_NAMES = frozenset({"file_data", "data", "b64_json"})
LEAST_MEDIA_CHARS = 256
COMPRESSION = 1
"""The fastest: it runs where answers are streamed."""


def texts_packed(request: GenerationRequest, events: Iterable[Event], *, most: int) -> bytes:
    """Return compressed JSON of `request` and `answers`, before redaction, with texts of at most about `most` bytes."""
    budget = _Budget(most)
    # The answers first: an end that is cut off tells less than a beginning of the prompt that is.
    answers = budget.cut(_answers(events))
    plain = {"request": budget.cut(_request(request)), "answers": answers, "is_cut": budget.is_cut}
    return zlib.compress(json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"), COMPRESSION)


def texts_unpacked(packed: bytes, *, most: int) -> dict[str, Any]:
    """Return what was packed. Raises ValueError for anything else, and for more than `most` bytes."""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, most)
        if unpacker.unconsumed_tail:
            raise ValueError(f"more than {most} bytes")
        plain = json.loads(text)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not isinstance(plain, dict):
        raise ValueError("not an object")
    return plain


def media_replaced(value: str) -> str:
    """Return a text that stands for an attached file: its kind, size and hash."""
    kind, _, rest = value.partition(",") if DATA_URL.match(value) else ("", "", value)
    name = kind.removeprefix("data:").partition(";")[0] or "data"
    digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()
    return f"[{name}, {len(rest) * 3 // 4:,} bytes, sha256 of its base64 {digest}]"


def _request(request: GenerationRequest) -> dict[str, Any]:
    plain: dict[str, Any] = {"model": request.model, "messages": [_without_media(one) for one in request.messages]}
    if request.raw is not None:
        raw = request.raw
        plain = {
            "model": request.model,
            "prompt": raw.text if raw.token_ids is None else f"[{len(raw.token_ids):,} token ids]",
        }
        plain |= {name: value for name in ("suffix", "document") if (value := getattr(raw, name)) is not None}
    if (speech := request.speech) is not None:
        plain = {"model": request.model, speech.param: media_replaced(f"data:audio;base64,{speech.data}")}
        plain |= {"prompt": speech.prompt} if speech.prompt else {}
    if request.tools:
        plain["tools"] = [tool.spec for tool in request.tools]
    if request.stop.stop:
        plain["stop"] = list(request.stop.stop)
    return plain


def _without_media(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without_media(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_media(item) for item in value]
    if not isinstance(value, str) or len(value) < LEAST_MEDIA_CHARS:
        return value
    return media_replaced(value) if name in MEDIA_NAMES or DATA_URL.match(value) else value


def _answers(events: Iterable[Event]) -> list[dict[str, Any]]:
    texts: dict[int, dict[str, list[str]]] = defaultdict(lambda: {"reasoning": [], "content": []})
    calls: dict[int, dict[int, dict[str, str]]] = defaultdict(dict)
    for event in events:
        delta = event.payload
        if isinstance(delta, SegmentSpoken):
            texts[0]["content"].append(delta.text)
        if not isinstance(delta, Delta):
            continue
        texts[delta.choice]["reasoning"].append(delta.reasoning)
        texts[delta.choice]["content"].append(delta.text)
        for part in delta.tool_calls:
            call = calls[delta.choice].setdefault(part.index, {"name": "", "arguments": ""})
            call["name"] += part.name or ""
            call["arguments"] += part.arguments
    answers = []
    for choice in sorted(texts):
        answer: dict[str, Any] = {name: text for name, parts in texts[choice].items() if (text := "".join(parts))}
        if calls[choice]:
            answer["tool_calls"] = [calls[choice][index] for index in sorted(calls[choice])]
        answers.append(answer)
    return answers


class _Budget:
    """Bytes of text that are left."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.is_cut = False

    def cut(self, value: Any) -> Any:
        """Return the value with each text shortened to what is left."""
        if isinstance(value, dict):
            return {self.cut(str(key)): self.cut(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.cut(item) for item in value[: self._take_items(len(value))]]
        if not isinstance(value, str):
            return value
        data = value.encode("utf-8", "replace")
        if len(data) <= self._left:
            self._left -= len(data)
            return value
        self.is_cut = True
        kept, self._left = data[: self._left].decode("utf-8", "ignore"), 0
        return f"{kept}[… cut here]"

    def _take_items(self, number: int) -> int:
        """Take a few bytes for each item of a list, so that long lists of numbers are cut too."""
        taken = min(number, self._left // 8)
        self.is_cut = self.is_cut or taken < number
        self._left -= 8 * taken
        return taken
