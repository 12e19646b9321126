"""Calls of gpt-oss: messages to `functions.NAME`. A message is a header, up to `<|message|>`, and a body.

<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
<|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>{…}<|call|>

Messages of the final channel, and commentary without a recipient, are content. Analysis is reasoning. A reasoning
parser in front of this one has already removed analysis; the plain text that it passes on is content.
"""

from __future__ import annotations

from engine.outputs.tools.reader import SPACE, Steps, both
from engine.outputs.tools.scripted import HeldText, ScriptedParser, read_rest
from engine.outputs.tools.values import read_value

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
RECIPIENT, PREFIX = "to=", "functions."
COMMENTARY = f"{CHANNEL}commentary {RECIPIENT}{PREFIX}"
"""The beginning of every call, up to its name."""


class HarmonyCallParser(ScriptedParser):
    """A parser that reads one message after the other."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, frozenset((START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)))

    def _run(self) -> Steps[None]:
        held = HeldText(self._answer)
        yield from self._reader.take_run(SPACE, held.write)
        marker = yield from self._reader.see(RECIPIENT + PREFIX)
        if not marker:
            held.release()
            marker = yield from self._read_text()
        while marker:
            held.write("" if marker.startswith(RECIPIENT) else marker)
            marker = yield from self._read_message(held)
            marker = marker or (yield from self._read_text())

    def _read_text(self) -> Steps[str]:
        """Read the text of a message to the user; return the marker that begins the next message."""
        while True:
            marker = yield from self._reader.until((START, CHANNEL, *ENDS), self._answer.content)
            if marker not in ENDS:
                return marker

    def _read_message(self, held: HeldText) -> Steps[str]:
        """Read a message whose header has begun; return the marker of the next header if that ended it, else ""."""
        parts: list[str] = []
        stop = yield from self._reader.until((MESSAGE, *ENDS), both(parts.append, held.write))
        header = "".join(parts).replace(CHANNEL, " ").replace(CONSTRAIN, " ").replace(START, " ").split()
        if stop != MESSAGE:
            self._give_up(held, is_text=bool(header) and header[0].startswith(RECIPIENT))
            return ""
        recipient = next((word.removeprefix(RECIPIENT) for word in header if word.startswith(RECIPIENT)), "")
        if recipient:
            return (yield from self._read_call(recipient.removeprefix(PREFIX), held))
        held.drop()
        if "analysis" in header:
            marker = yield from self._reader.until((START, CHANNEL, *ENDS), self._answer.reasoning)
            return "" if marker in ENDS else marker
        return ""

    def _give_up(self, held: HeldText, is_text: bool) -> None:
        """Drop a header without a body; release it as content if it did not begin with a marker."""
        if is_text:
            held.release()
        held.drop()

    def _read_call(self, name: str, held: HeldText) -> Steps[str]:
        if name not in self._answer.names:
            held.write(MESSAGE)
            held.release()
            return ""
        held.drop()
        self._answer.start(name)
        yield from self._reader.skip_space()
        ends = (*ENDS, START, CHANNEL)
        if (yield from self._reader.see("{")) and (yield from read_value(self._reader, self._answer.arguments, ends)):
            self._answer.end()
            return ""
        yield from read_rest(self._reader, self._answer, ENDS)
        return ""
