"""A conversation: messages and commands, over a server that answers as it is told."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from lightcone_site.terminal.client import Piece, TerminalError
from lightcone_site.terminal.conversation import DIM, PLAIN, Conversation


class Scripted:
    """A server whose answers are pieces, errors or the user's Ctrl-C. `asked`: model, messages, parameters."""

    def __init__(self, *answers: list[Piece | BaseException]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, list[dict[str, str]], dict[str, Any]]] = []
        self.num_closed = 0

    def models(self) -> list[str]:
        return ["first", "second"]

    def answer(
        self, model: str, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Generator[Piece, None, None]:
        self.asked.append((model, messages, dict(parameters)))
        try:
            for piece in self._answers.pop(0):
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self.num_closed += 1


def talk(server: Scripted, *lines: str, **options: Any) -> tuple[str, Conversation]:
    """Type lines; return what is printed, and the conversation."""
    printed: list[str] = []
    conversation = Conversation(server, "first", printed.append, **options)
    given = iter(lines)

    def read(prompt: str) -> str:
        for line in given:
            return line
        raise EOFError

    conversation.run(read)
    return "".join(printed), conversation


def test_messages_and_answers_are_remembered() -> None:
    server = Scripted([Piece("He"), Piece("llo"), Piece("", finish_reason="stop")], [Piece("Fine")])
    printed, _ = talk(server, "hi", "", "how are you?")
    assert printed == "Hello\nFine\n"
    assert [message["content"] for message in server.asked[1][1]] == ["hi", "Hello", "how are you?"]


def test_a_message_of_several_lines_is_quoted() -> None:
    server = Scripted([Piece("ok")], [Piece("ok")], [Piece("ok")])
    talk(server, '"""first', "  second", 'third"""', '"""one line"""', '"""/etc/hosts"""')
    asked = [messages[-1]["content"] for _, messages, _ in server.asked]
    assert asked == ["first\n  second\nthird", "one line", "/etc/hosts"]


def test_parameters_and_the_system_message_are_sent() -> None:
    server = Scripted([Piece("ok")], [Piece("ok")])
    sent = ["/set temperature 0.5", '/set stop ["a", "b"]', "/set user me", "/set system Be brief.", "/set", "hi"]
    printed, _ = talk(server, *sent, "/unset user", "/unset system", "/unset nothing", "/set top_p", "bye")
    assert 'system "Be brief."\ntemperature 0.5\nstop ["a", "b"]\nuser "me"\n' in printed
    assert "nothing is not set.\n/set top_p wants a value; /unset top_p leaves it out.\n" in printed
    (_, first, parameters), (_, last, fewer) = server.asked
    assert first[0] == {"role": "system", "content": "Be brief."}
    assert parameters == {"temperature": 0.5, "stop": ["a", "b"], "user": "me"}
    assert last[0]["role"] == "user"
    assert fewer == {"temperature": 0.5, "stop": ["a", "b"]}


def test_another_model_goes_on_with_the_conversation() -> None:
    server = Scripted([Piece("one")], [Piece("two")])
    printed, _ = talk(server, "/model", "hi", "/model third", "/model second", "and you?")
    assert "* first\n  second\n" in printed
    assert "There is no model 'third'. There are: first, second." in printed
    assert [model for model, *_ in server.asked] == ["first", "second"]
    assert len(server.asked[1][1]) == 3


def test_a_refusal_leaves_the_conversation_as_it_was() -> None:
    server = Scripted([Piece("one")], [TerminalError("temperature must be at most 2")], [Piece("two")])
    printed, conversation = talk(server, "hi", "bad", "good")
    assert "temperature must be at most 2\n" in printed
    assert [message["content"] for message in conversation.messages] == ["hi", "one", "good", "two"]


def test_an_answer_can_be_stopped_and_repeated() -> None:
    server = Scripted([Piece("half"), KeyboardInterrupt(), Piece("never")], [Piece("whole")], [TerminalError("gone")])
    printed, conversation = talk(server, "/again", "hi", "/again", "/again", "/clear")
    assert printed == "There is no message yet.\nhalf\nwhole\ngone\n"
    assert [messages[-1]["content"] for _, messages, _ in server.asked] == ["hi"] * 3
    assert server.num_closed == 3
    assert conversation.messages == []


def test_a_cut_answer_is_said_and_thoughts_are_dim() -> None:
    thoughts = [Piece("hm", is_reasoning=True), Piece("yes"), Piece("", finish_reason="length")]
    printed, conversation = talk(Scripted(thoughts), "hi", is_coloured=True)
    assert printed == f"{DIM}hm{PLAIN}\n\nyes\n(cut at max_tokens or at the end of the context)\n"
    assert conversation.messages[-1]["content"] == "yes"


def test_what_a_model_says_cannot_command_a_terminal() -> None:
    answer = [Piece("a\x1b]52;c;aGk=\x07b\x9b2J\tc\n")]
    assert talk(Scripted(answer), "hi", is_coloured=True)[0].startswith("a]52;c;aGk=b2J\tc\n")
    assert "\x1b" in talk(Scripted(answer), "hi")[0]  # a file gets what was said


def test_thoughts_and_answer_are_apart_without_colours() -> None:
    assert talk(Scripted([Piece("hm", is_reasoning=True), Piece("yes")]), "hi")[0] == "hm\n\nyes\n"


def test_an_answer_that_is_stopped_before_its_first_word_is_forgotten() -> None:
    assert talk(Scripted([KeyboardInterrupt()]), "hi")[1].messages == []


def test_an_answer_that_is_repeated_and_stopped_at_once_is_kept() -> None:
    _, conversation = talk(Scripted([Piece("one")], [KeyboardInterrupt()]), "hi", "/again")
    assert [message["content"] for message in conversation.messages] == ["hi", "one"]


@pytest.mark.parametrize("line", ["/bye", "/exit", " /quit "])
def test_the_user_can_leave(line: str) -> None:
    server = Scripted()
    talk(server, line, "never sent")
    assert server.asked == []


def test_an_unknown_command_shows_the_known_ones() -> None:
    printed, _ = talk(Scripted(), "/what", "/help")
    assert printed.count("/model [NAME]") == 2
