"""A conversation in the terminal: messages, parameters, and commands that begin with `/`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from lightcone_site.terminal.client import Piece, TerminalError

HELP = """\
/model [NAME]         show the models, or go on with another one
/set [NAME VALUE]     show the parameters of requests, or set one, such as temperature or max_tokens; JSON or text
/set system TEXT      tell the model how to behave
/unset NAME           leave a parameter out again
/again                answer the last message once more
/clear                begin a new conversation
/bye                  leave (as Ctrl-D does)
\"\"\" begins and ends a message of several lines. Ctrl-C stops an answer."""
QUOTES = '"""'
SYSTEM = "system"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
CONTROLS = dict.fromkeys([*range(32), *range(127, 160)])
"""Characters that a terminal may obey."""
del CONTROLS[ord("\n")], CONTROLS[ord("\t")]


def printable(text: str) -> str:
    """Return a text that is not ours without what a terminal would obey."""
    return text.translate(CONTROLS)


def value_of(text: str) -> Any:
    """Read the value of a parameter: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


class Server(Protocol):
    """What answers; `client.Client` does."""

    def models(self) -> list[str]: ...

    def answer(
        self, model: str, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Generator[Piece, None, None]: ...


@dataclass
class Conversation:
    """A conversation with a model of a server. `write` prints text as it is; with `is_coloured` thoughts are dim."""

    server: Server
    model: str
    write: Callable[[str], None]
    is_coloured: bool = False
    messages: list[dict[str, str]] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    system: str = ""

    def run(self, read: Callable[[str], str]) -> None:
        """Read lines and answer until the input ends or the user leaves. `read` prints a prompt; it raises EOFError."""
        with contextlib.suppress(EOFError):
            while self.take(*self._message(read)):
                pass

    def take(self, text: str, is_quoted: bool = False) -> bool:
        """Answer a message, or follow a command unless it is quoted; return False if the user leaves."""
        command, _, rest = text.strip().partition(" ")
        if not command:
            return True
        if not command.startswith("/") or is_quoted:
            self.say(text)
            return True
        if command in ("/bye", "/exit", "/quit"):
            return False
        known = {"/model": self._use, "/set": self._set, "/unset": self._unset, "/again": self._again}
        known |= {"/clear": self._clear}
        known.get(command, lambda rest: self._line(HELP))(rest.strip())
        return True

    def say(self, text: str) -> bool:
        """Send a message and print the answer. If that fails the conversation stays as it was; return False."""
        said, is_dim, reason = "", False, ""
        try:
            with closing(self.pieces(text)) as pieces:
                for piece in pieces:
                    if piece.is_reasoning != is_dim and piece.text:
                        is_dim = piece.is_reasoning
                        dim, plain = (DIM, PLAIN) if self.is_coloured else ("", "")
                        self.write(dim if is_dim else f"{plain}\n\n")
                    self.write(printable(piece.text) if self.is_coloured else piece.text)
                    said += "" if piece.is_reasoning else piece.text
                    reason = piece.finish_reason or reason
        except KeyboardInterrupt:
            reason = "stopped"
        except TerminalError as error:
            self._line(f"{PLAIN if is_dim and self.is_coloured else ''}{printable(str(error))}")
            return False
        self._line(PLAIN if is_dim and self.is_coloured else "")
        if reason == "length":
            self._line("(cut at max_tokens or at the end of the context)")
        if reason == "stopped" and not said:
            return False
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": said}]
        return True

    def pieces(self, text: str) -> Generator[Piece, None, None]:
        """Ask for the answer to a message. Closing the generator stops it. Raises TerminalError."""
        start = [{"role": SYSTEM, "content": self.system}] if self.system else []
        asked = [*start, *self.messages, {"role": "user", "content": text}]
        return self.server.answer(self.model, asked, self.parameters)

    def _message(self, read: Callable[[str], str]) -> tuple[str, bool]:
        """Read a message, which may have several lines between quotes; return whether it has quotes too."""
        text = read(">>> ")
        if not text.lstrip().startswith(QUOTES):
            return text, False
        text = text.lstrip().removeprefix(QUOTES)
        while not text.rstrip().endswith(QUOTES):
            text += "\n" + read("... ")
        return text.rstrip().removesuffix(QUOTES).strip("\n"), True

    def _use(self, name: str) -> None:
        try:
            names = self.server.models()
        except TerminalError as error:
            self._line(printable(str(error)))
            return
        if not name:
            self._line("\n".join(f"{'*' if one == self.model else ' '} {printable(one)}" for one in names))
        elif name in names:
            self.model = name
            self._line(f"{name} answers from now on; the conversation goes on.")
        else:
            self._line(f"There is no model {name!r}. There are: {printable(', '.join(names))}.")

    def _set(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if not name:
            shown = {SYSTEM: self.system} if self.system else {}
            self._line(
                "\n".join(f"{key} {json.dumps(one)}" for key, one in (shown | self.parameters).items()) or "none set"
            )
        elif name == SYSTEM:
            self.system = value.strip()
        elif not value.strip():
            self._line(f"/set {name} wants a value; /unset {name} leaves it out.")
        else:
            self.parameters[name] = value_of(value)

    def _unset(self, name: str) -> None:
        if name == SYSTEM:
            self.system = ""
        elif name in self.parameters:
            del self.parameters[name]
        else:
            self._line(f"{name or 'nothing'} is not set.")

    def _again(self, rest: str) -> None:
        if not self.messages:
            self._line("There is no message yet.")
            return
        before, self.messages = self.messages, self.messages[:-2]
        if not self.say(before[-2]["content"]):
            self.messages = before

    def _clear(self, rest: str) -> None:
        self.messages.clear()

    def _line(self, text: str) -> None:
        self.write(f"{text}\n")
