"""The operator's console: one aligned line for each component and event, in colour on a terminal only."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from chat.masking import escape_controls

COLOURS = {"ok": "32", "problem": "31", "working": "33", "title": "1"}
MARKS = {"ok": "ok", "problem": "!!!", "working": "..."}
NAME_WIDTH = 13


class Console:
    """Writes lines to `stream`, which may be closed.

    Progress overwrites itself on a terminal; elsewhere it is a line.
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
        self._write(self._format(component, "ok", text))

    def working(self, component: str, text: str) -> None:
        self._write(self._format(component, "working", text))

    def problem(self, component: str, text: str) -> None:
        self._write(self._format(component, "problem", text))

    def detail(self, label: str, text: str) -> None:
        """Write a line without a state: an address, a hint."""
        self._write(f"  {label:<{NAME_WIDTH}}{escape_controls(text)}")

    def progress(self, component: str, text: str, fraction: float | None = None) -> None:
        """Show how far a step is. On a terminal the next line replaces it."""
        if not self._is_terminal:
            if text != self._progress:
                self._progress = text
                self.working(component, text)
            return
        percent = "" if fraction is None else f" {fraction:4.0%}"
        self._progress = text
        self._put(f"\r\x1b[K{self._format(component, 'working', text + percent)}")

    def _format(self, component: str, state: str, text: str) -> str:
        return f"  {component:<{NAME_WIDTH}}{self._paint(f'{MARKS[state]:<4}', state)} {escape_controls(text)}"

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
            # The stream still holds text, which Python would write at exit: send that nowhere, too.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self._stream.fileno())
            os.close(devnull)
