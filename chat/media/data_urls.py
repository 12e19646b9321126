"""Read data URLs and base64 texts of media: strictly, in linear time, the size first.

`data:video/jpeg;base64,A,B,…` is a list of frames; its commas are counted before anything is cut.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass

from chat.media.errors import media_refused
from engine.api.media import MediaKind, MediaLimits

MAX_HEAD_CHARS = 1024
"""The longest head of a data URL: all that precedes its data."""
HEAD = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
FRAMES_TYPE = "video/jpeg"


@dataclass(frozen=True, slots=True)
class Media:
    """An item as it came, undecoded. A list of frames has several `parts`, or one; all else has one."""

    kind: MediaKind
    parts: tuple[bytes, ...]
    is_frames: bool = False
    may_be_kept: bool = True
    """Its server has not said `no-store`."""

    @property
    def data(self) -> bytes:
        """The bytes of an item that is no list of frames."""
        return self.parts[0]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.parts))


class MediaBudget:
    """The bytes that the items of one request may still have together."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._left = limits.max_media_request_bytes

    @property
    def num_taken(self) -> int:
        """The bytes of the items so far."""
        return self._limits.max_media_request_bytes - self._left

    @property
    def item_bytes(self) -> int:
        """The most bytes that the next item may have."""
        return min(self._limits.max_media_bytes, self._left)

    def take(self, num_bytes: int, param: str) -> None:
        """Count an item. Raises ApiError if it is too large, or all items together are."""
        if num_bytes > self.item_bytes:
            raise self.exceeded(param)
        self._left -= num_bytes

    def exceeded(self, param: str) -> Exception:
        """Return the error for an item that has more bytes than it may."""
        most, total = self._limits.max_media_bytes, self._limits.max_media_request_bytes
        if self._left >= most:
            return media_refused(param, f"must have at most {most} bytes; send a smaller file", limit=most)
        message = f"is too large: all media of a request may have at most {total} bytes; send fewer or smaller files"
        return media_refused(param, message, limit=total)


def is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def data_url_read(url: str, *, kind: MediaKind, param: str, limits: MediaLimits, budget: MediaBudget) -> Media:
    """Return the bytes of a data URL. What it says of its type counts for lists of frames alone. Raises ApiError."""
    head = HEAD.match(url[:MAX_HEAD_CHARS])
    if head is None or not head.group(2).lower().endswith(";base64"):
        raise media_refused(param, "must be of the form data:TYPE;base64,DATA")
    if kind == MediaKind.VIDEO and head.group(1).lower() == FRAMES_TYPE:
        return _frames(url, head.end(), param, limits, budget)
    return Media(kind, (base64_read(url, param=param, budget=budget, start=head.end()),))


def base64_read(text: str, *, param: str, budget: MediaBudget, start: int = 0) -> bytes:
    """Return the bytes of a base64 text from `start` on. Raises ApiError."""
    budget.take(_num_bytes(len(text) - start), param)
    return _decoded(text[start:], param)


def _decoded(text: str, param: str) -> bytes:
    """Return the bytes of a base64 text whose padding is right. Raises ApiError."""
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        data = b""
    if not text:
        raise media_refused(param, "must not be empty; send the bytes of a file in base64")
    if not data or len(text) % 4:  # Python takes padding where none belongs
        raise media_refused(param, "must be base64 with its padding, without spaces and line breaks")
    return data


def _frames(url: str, start: int, param: str, limits: MediaLimits, budget: MediaBudget) -> Media:
    most = limits.max_video_frames
    count = url.count(",", start) + 1
    if count > most:
        message = f"must have at most {most} frames, got {count}; send fewer"
        raise media_refused(param, message, limit=most, value=count)
    budget.take(_num_bytes(len(url) - start - count), param)
    frames = []
    while start <= len(url):
        end = url.find(",", start)
        end = len(url) if end < 0 else end
        frames.append(_decoded(url[start:end], param))
        start = end + 1
    return Media(MediaKind.VIDEO, tuple(frames), is_frames=True)


def _num_bytes(num_chars: int) -> int:
    """Return the fewest bytes that a base64 text of this length has."""
    return max(num_chars // 4 * 3 - 2, 0)
