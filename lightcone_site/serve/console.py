"""What the operator sees: one aligned line per component and event, in colour on a terminal only."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from lightcone_site.control_characters import escape_controls

COLOURS = {"ok": "32", "problem": "31", "working": "33", "title": "1", "quiet": "2"}
NAME_WIDTH = 13


class Console:
    """Writes lines to `stream`. Progress overwrites itself on a terminal; elsewhere a step is written when its words change.

    Nothing is raised where nobody can read any more, as in a terminal that was closed: what runs is still to be drained and stopped.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._progress = ""

    def title(self, text: str) -> None:
        self._write(f"\n{self._paint(text, 'title')}\n")

    def blank(self) -> None:
        self._write("")

    def ok(self, component: str, text: str) -> None:
        self._line(component, "ok", text)

    def working(self, component: str, text: str) -> None:
        self._line(component, "working", text)

    def problem(self, component: str, text: str) -> None:
        self._line(component, "problem", text)

    def detail(self, label: str, text: str) -> None:
        """A line without a state: an address, a hint."""
        self._write(f"  {label:<{NAME_WIDTH}}{escape_controls(text)}")

    def progress(self, component: str, text: str, fraction: float | None = None) -> None:
        """Say how far something is; replaced by the next line on a terminal."""
        if not self._is_terminal:
            if text != self._progress:
                self._progress = text
                self.working(component, text)
            return
        share = "" if fraction is None else f" {fraction:4.0%}"
        self._progress = text
        self._put(f"\r\x1b[K{self._format(component, 'working', text + share)}")

    def _line(self, component: str, state: str, text: str) -> None:
        self._write(self._format(component, state, text))

    def _format(self, component: str, state: str, text: str) -> str:
        word = {"ok": "ok", "working": "...", "problem": "!!!"}[state]
        return f"  {component:<{NAME_WIDTH}}{self._paint(f'{word:<4}', state)} {escape_controls(text)}"

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self._is_terminal else text

    def _write(self, text: str) -> None:
        if self._is_terminal and self._progress:
            self._put("\r\x1b[K")
            self._progress = ""
        self._put(text + "\n")

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            nowhere = os.open(
                os.devnull, os.O_WRONLY
            )  # for what the stream has kept back, too: Python writes that at its end
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
