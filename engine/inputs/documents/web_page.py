"""The text that an HTML page shows, by the standard parser, which runs and fetches nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from engine.api.request import MAX_FILE_CHARS
from engine.inputs.documents.limits import refused, too_long

HIDDEN = frozenset({"script", "style", "template"})
BREAKS = frozenset(
    "address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section table title tr ul".split()
)
CELLS = frozenset({"td", "th"})
SPACE = re.compile(r"[ \t\r\f\v\n]+")
EMPTY_LINES = re.compile(r"\n{3,}")


def web_page_text(markup: str) -> str:
    """Return the text of a page: headings with `#`, items with `-`, cells apart by tabs. Raises RequestError."""
    page = _Page()
    try:
        page.feed(markup)
        page.close()
    except AssertionError:  # of the parser, about a declaration that it cannot read; its text quotes the file
        raise refused("the HTML file is damaged: it has a declaration that does not end; send its text") from None
    lines = "\n".join(line.rstrip() for line in "".join(page.pieces).split("\n"))
    text = EMPTY_LINES.sub("\n\n", lines).strip("\n")
    if not text.strip():
        raise refused("the HTML file has no text; send text")
    if len(text) > MAX_FILE_CHARS:
        raise too_long()
    return text


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden: list[str] = []
        self._num_pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN:
            self._hidden.append(tag)
        if self._hidden:
            return
        if tag in BREAKS:
            self._break()
        if tag in CELLS and not self._is_at_start():
            self.pieces.append("\t")
        if tag == "pre":
            self._num_pre += 1
        elif tag == "li":
            self.pieces.append("- ")
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.pieces.append("#" * int(tag[1]) + " ")
        elif tag == "img" and (alternative := dict(attrs).get("alt")):
            self.pieces.append(f"[{SPACE.sub(' ', alternative)}]")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
            return
        if tag in BREAKS:
            self._break()
        if tag == "pre":
            self._num_pre = max(0, self._num_pre - 1)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._num_pre:
            data = SPACE.sub(" ", data)
            data = data.lstrip(" ") if not self.pieces or self.pieces[-1][-1].isspace() else data
        if data:
            self.pieces.append(data)

    def _break(self) -> None:
        if not self._is_at_start():
            self.pieces.append("\n")

    def _is_at_start(self) -> bool:
        """Return True if nothing stands on the line yet."""
        return not self.pieces or self.pieces[-1].endswith("\n")
