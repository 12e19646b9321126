"""Reads one JSON or Python value from a growing text by counting brackets and quotes.

Neither builds nor validates the value.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.outputs.tools.reader import Reader, Steps, Write, both

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Syntax:
    """The characters that quote, that nest, and that end a value which is neither quoted nor nested."""

    quotes: str
    opens: str
    closes: str
    stops: str
    ends_closed: bool = True
    """A quoted or nested value ends with its last character. False: it continues, as Python joins adjacent strings."""


JSON = Syntax('"', "{[", "}]", ",}] \t\r\n")
PYTHON = Syntax("\"'", "{[(", "}])", ",}])", ends_closed=False)
PYTHON_REST = Syntax("\"'", "{[(", "}])", "")


def read_value(
    reader: Reader, write: Write, ends: tuple[str, ...] = (), syntax: Syntax = JSON, depth: int = 0
) -> Steps[bool]:
    """Consume one value; with `depth` 1, the rest of one whose bracket is consumed. Return False if it was cut.

    The end of the text cuts a value, and so does one of the markers `ends` outside strings. Inside a string a marker is
    text, unless a line break or the end of the answer follows it. No string can contain those, so the model has
    forgotten a quote.
    """
    scan = _Scan(syntax, depth)
    firsts = "".join(end[0] for end in ends)
    while character := (yield from reader.peek()):
        if character in firsts and (yield from _is_cut(reader, ends, bool(scan.quote))):
            return False
        start, reader.at = reader.at, scan.run(reader.text, reader.at, firsts)
        if reader.at > start:
            write(reader.text[start : reader.at])
        if scan.is_done:
            return True
    return scan.is_begun and scan.depth == 0 and not scan.quote


class _Scan:
    """The position within a value: its depth, its open quote, and whether it has begun and ended."""

    def __init__(self, syntax: Syntax, depth: int) -> None:
        self.depth = depth
        self.quote = ""
        self.is_begun = depth > 0
        self.is_done = False
        self._is_escaped = False
        self._syntax = syntax

    def run(self, text: str, at: int, firsts: str) -> int:
        """Advance from `at`; return where the value ends, a marker may begin, or the text ends."""
        for index in range(at, len(text)):
            if text[index] in firsts and index > at:
                return index
            if self._ends_before(text[index]):
                self.is_done = True
                return index
            self._step(text[index])
            if self.is_done:
                return index + 1
        return len(text)

    def _ends_before(self, character: str) -> bool:
        return self.depth == 0 and not self.quote and character in self._syntax.stops

    def _step(self, character: str) -> None:
        self.is_begun = True
        if self._is_escaped:
            self._is_escaped = False
            return
        if self.quote:
            self._is_escaped = character == "\\"
            if character != self.quote:
                return
            self.quote = ""
        elif character in self._syntax.quotes:
            self.quote = character
            return
        elif character in self._syntax.opens:
            self.depth += 1
            return
        elif character in self._syntax.closes:
            self.depth -= 1
        else:
            return
        self.is_done = self.depth == 0 and self._syntax.ends_closed


def _is_cut(reader: Reader, ends: tuple[str, ...], in_string: bool) -> Steps[bool]:
    """Return True if an end marker comes next and cuts the value."""
    end = yield from reader.see(*ends)
    if not end or not in_string:
        return bool(end)
    while len(reader.text) == reader.at + len(end) and not reader.has_ended:
        yield
    return reader.text[reader.at + len(end) : reader.at + len(end) + 1] in ("", "\n")


def read_string(reader: Reader, write: Write, write_raw: Write = lambda text: None) -> Steps[bool]:
    """Consume a JSON string and write its decoded text. Return False if the text ended inside it.

    `write_raw` gets the string as it is written.
    """
    write_raw((yield from reader.take('"')))
    while True:
        stop = yield from reader.until(("\\", '"'), both(write, write_raw))
        write_raw(stop)
        if stop != "\\":
            return bool(stop)
        yield from _read_escape(reader, write, write_raw)


def _read_escape(reader: Reader, write: Write, write_raw: Write) -> Steps[None]:
    """Read the text after a backslash. Unknown escapes stand for themselves; half a surrogate pair becomes U+FFFD."""
    character = yield from reader.peek()
    if character == "u":
        code = yield from _read_code(reader, write_raw)
        if 0xD800 <= code < 0xDC00 and (yield from reader.see("\\u")):
            write_raw((yield from reader.take("\\")))
            low = yield from _read_code(reader, write_raw)
            if 0xDC00 <= low < 0xE000:
                write(chr(0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00))
                return
            write("\ufffd")
            code = low
        if code >= 0:
            write("\ufffd" if 0xD800 <= code < 0xE000 else chr(code))
    elif character:
        yield from reader.take(character)
        write_raw(character)
        write(_ESCAPES.get(character, "\\" + character))


def _read_code(reader: Reader, write_raw: Write) -> Steps[int]:
    """Read `u` and four hexadecimal digits; return -1 if the text ends before, U+FFFD at any other character."""
    write_raw((yield from reader.take("u")))
    digits = ""
    while len(digits) < 4:
        character = yield from reader.peek()
        if not character:
            return -1
        if character not in "0123456789abcdefABCDEF":
            return 0xFFFD
        yield from reader.take(character)
        write_raw(character)
        digits += character
    return int(digits, 16)
