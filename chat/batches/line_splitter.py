"""Split a file that comes in pieces into lines. Any split of the content gives the same lines."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Splits content into (number from 1, bytes without line end). `feed` returns complete lines, `flush` the last one.

    Blank lines are counted but not returned. A longer line is cut to `max_bytes` + 1, which bounds memory and lets the
    reader see that it is too long.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._number = 0
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[tuple[int, bytes]]:
        *whole, rest = piece.split(b"\n")
        lines = []
        for part in whole:
            self._keep(part)
            lines += self.flush()
        self._keep(rest)
        return lines

    def flush(self) -> list[tuple[int, bytes]]:
        self._number += 1
        line = bytes(self._rest)
        self._rest.clear()
        if self._number == 1:
            line = line.removeprefix(BOM)
        line = line.removesuffix(b"\r")
        return [(self._number, line)] if line.strip() else []

    def _keep(self, part: bytes) -> None:
        self._rest += part[: self._max_bytes + 1 - len(self._rest)]
