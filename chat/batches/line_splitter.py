"""The lines of a file that comes in pieces. Any split of the content gives the same lines."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """`feed` gives the complete lines as (number from 1, bytes without the line end); `flush` the last one. Blank lines are counted only.

    A line longer than `max_bytes` comes cut to one byte more: its reader sees that it is too long, and the memory is bounded.
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
