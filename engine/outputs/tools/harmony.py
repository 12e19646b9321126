"""gpt-oss: messages of a header, from `<|start|>` or `<|channel|>` to `<|message|>`, and a body; a call is one to `functions.NAME`.

<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
<|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>{…}<|call|>

Messages to the user, of the final channel or of commentary without a recipient, are content. Analysis is reasoning; where a reasoning
parser stands before this one it has taken that out, and plain text that it passes on is content.
"""

from __future__ import annotations

from engine.outputs.tools.reader import SPACE, Steps, both
from engine.outputs.tools.scripted import HeldText, ScriptedParser, read_rest
from engine.outputs.tools.values import read_value

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
RECIPIENT, PREFIX = "to=", "functions."
COMMENTARY = f"{CHANNEL}commentary {RECIPIENT}{PREFIX}"
"""What every call begins with, up to its name."""


class HarmonyCallParser(ScriptedParser):
    """One message after the other."""

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
        """Text of a message to the user; returns the marker that begins the next one."""
        while True:
            marker = yield from self._reader.until((START, CHANNEL, *ENDS), self._answer.content)
            if marker not in ENDS:
                return marker

    def _read_message(self, held: HeldText) -> Steps[str]:
        """A message whose header has begun; returns the marker of the next header if that ended it, else ""."""
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
        """A header without a body; what did not begin with a marker may have been text."""
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
