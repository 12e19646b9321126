"""Conversations as files: our JSON (the whole tree), Markdown and OpenAI's JSONL (what is shown), and back.

An import makes new conversations. What it does not know in a file is listed, never dropped unseen.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.db import transaction
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import field_problems, field_read
from chat.api.request.strict_json import json_object_read
from chat.conversations.chatgpt import chatgpt_read
from chat.conversations.content import answer_content, content_text, media_names, message_of, title_of
from chat.conversations.facets import conversation_tags
from chat.conversations.files import contents_whole
from chat.conversations.models import Conversation, TurnState
from chat.conversations.schema import CONVERSATION, TURN, TURN_FIELDS, id_read, page_bounds, turn_body
from chat.conversations.services import conversation_create
from chat.conversations.turns import MAX_TURNS, TurnSent, body_of, turns_add, turns_list, turns_shown
from chat.errors import ApiError, problems_error

KIND = "lightcone.conversation"
KIND_SEVERAL = "lightcone.conversations"
MAX_IMPORTED = 100
"""Conversations of one import."""
MAX_EXPORTED_BYTES = 128 * 1024 * 1024
"""Of one file, as conversations are stored, and of their files in base64 wherever they are named."""
MAX_UNKNOWN = 50
TURN_NAMES = ("id", *(name for name in TURN_FIELDS if name != "run"))
MESSAGE_NAMES = ("role", "content", "tool_calls", "tool_call_id")
OURS = ("object", "title", "folder", "tags", "settings", "head", "created_at", "turns")
ROLE_TITLES = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer", "tool": "Tool"}


@dataclass(slots=True)
class Imported:
    """What an import has made, and the names in the file that it does not know."""

    conversations: list[Conversation] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def note(self, place: str, names: Iterable[str]) -> None:
        room = MAX_UNKNOWN - len(self.unknown)
        self.unknown += [f"{place}.{name[:64]}" for name in names][: max(0, room)]


# To files.


def conversation_json(*, conversation: Conversation) -> bytes:
    """Return the whole tree with all that is stored of it, its files included. Raises ApiError if it is too large."""
    stored = turns_list(conversation=conversation)
    turns = [
        {
            "id": turn.public_id,
            "parent": turn.parent,
            "role": turn.role,
            "state": turn.state,
            **body,
        }
        for turn, body in zip(stored, _with_files([body_of(turn) for turn in stored], conversation), strict=True)
    ]
    plain = {
        "object": KIND,
        "title": conversation.title,
        "folder": conversation.folder,
        "tags": conversation_tags(conversation),
        "settings": orjson.loads(conversation.settings),
        "head": conversation.head,
        "created_at": conversation.created_at.timestamp(),
        "turns": turns,
    }
    return orjson.dumps(plain)


def conversation_markdown(*, conversation: Conversation) -> bytes:
    """Return title and texts of what is shown, each under the name of its role."""
    blocks = [f"# {conversation.title or 'Chat'}"]
    for turn in turns_shown(conversation=conversation):
        names = ", ".join(media_names(turn.body.get("content")))
        said = "\n\n".join(filter(None, (f"*{names}*" if names else "", turn.text)))
        blocks.append(f"## {ROLE_TITLES.get(turn.role, turn.role)}\n\n{said}".rstrip())
    return ("\n\n".join(blocks) + "\n").encode()


def conversation_jsonl(*, conversation: Conversation) -> bytes:
    """Return what is shown as one line with `messages`, as OpenAI's files for training have them. Raises ApiError."""
    messages = [message_of(turn.role, turn.body) for turn in turns_shown(conversation=conversation)]
    return orjson.dumps({"messages": _with_files(messages, conversation, is_sent=True)}) + b"\n"


def _with_files(
    said: Sequence[dict[str, Any]], conversation: Conversation, *, is_sent: bool = False
) -> list[dict[str, Any]]:
    """Return bodies of turns, or messages, with their files in the place of the names. Raises ApiError."""
    contents = [one.get("content") for one in said]
    whole = contents_whole(conversation, contents, limit=MAX_EXPORTED_BYTES, is_sent=is_sent)
    return [
        one | {"content": content} if isinstance(content, list) else one
        for one, content in zip(said, whole, strict=True)
    ]


EXPORTS = {
    "json": (conversation_json, "application/json"),
    "markdown": (conversation_markdown, "text/markdown; charset=utf-8"),
    "jsonl": (conversation_jsonl, "application/jsonl"),
}


# From files.


def conversations_import(*, user_id: int, format_name: str, text: str, first: int | None = None) -> Imported:
    """Create conversations from a file: all of them or none. Raises ApiError that names the line or the field.

    `first`: the place of the first one in its file, from 1, if the text is a part of a file of several.
    """
    imported = Imported()
    with transaction.atomic():
        if format_name == "lightcone":
            if first is not None:
                raise ApiError(
                    "unsupported_parameter", "first is for lines and lists of conversations; leave it out", "first"
                )
            _import_trees(imported, user_id, json_object_read(text.encode(), page_bounds()))
            return imported
        if format_name == "chatgpt":
            _import_chatgpt(imported, user_id, text, (first or 1) - 1)
            return imported
        # JSON may hold what else `splitlines` takes for the end of a line.
        lines = [(number, line) for number, line in enumerate(text.split("\n"), first or 1) if line.strip()]
        if not 1 <= len(lines) <= MAX_IMPORTED:
            message = f"text must have 1 to {MAX_IMPORTED} lines, each a conversation; got {len(lines)}"
            raise ApiError("invalid_value", f"{message}; divide the file", "text")
        bounds = page_bounds()
        for number, line in lines:
            _import_messages(imported, user_id, f"line {number}", json_object_read(line.encode(), bounds))
    return imported


def _import_trees(imported: Imported, user_id: int, plain: Mapping[str, Any]) -> None:
    if plain.get("object") != KIND_SEVERAL:
        _import_tree(imported, user_id, plain)
        return
    imported.note("file", (name for name in plain if name not in ("object", "conversations")))
    chats = _list_of_objects(plain.get("conversations"), "conversations")
    if not 1 <= len(chats) <= MAX_IMPORTED:
        message = f"text must have 1 to {MAX_IMPORTED} conversations, got {len(chats)}"
        raise ApiError("invalid_value", f"{message}; divide the file", "text")
    for number, chat in enumerate(chats):
        _import_tree(imported, user_id, chat, f"conversations.{number}.")


def _import_tree(imported: Imported, user_id: int, plain: Mapping[str, Any], within: str = "") -> None:
    if plain.get("object") != KIND:
        raise ApiError("invalid_value", f"text must be a conversation as it is exported here: object {KIND}", "text")
    imported.note(f"{within}conversation", (name for name in plain if name not in OURS))
    known = {name: plain[name] for name in ("title", "folder", "tags", "settings") if name in plain}
    turns = []
    for number, sent in enumerate(_list_of_objects(plain.get("turns"), f"{within}turns")):
        place = f"{within}turns.{number}"
        imported.note(place, (name for name in sent if name not in TURN_NAMES))
        values = _read(TURN, {name: sent[name] for name in TURN_NAMES if name in sent and name != "id"}, place)
        # A run of another time or place can end no turn of this one.
        state = str(TurnState.FAILED) if values["state"] == TurnState.BEGUN else values["state"]
        turns.append(
            TurnSent(_read_id(sent.get("id"), place), values["parent"], values["role"], state, turn_body(values))
        )
    head = plain.get("head")
    _save(imported, user_id, _read(CONVERSATION, known, f"{within}conversation"), turns, str(head) if head else "")


def _import_messages(imported: Imported, user_id: int, place: str, plain: Mapping[str, Any]) -> None:
    imported.note(place, (name for name in plain if name != "messages"))
    turns: list[TurnSent] = []
    for number, message in enumerate(_list_of_objects(plain.get("messages"), f"{place}: messages")):
        at = f"{place}: messages.{number}"
        imported.note(at, (name for name in message if name not in MESSAGE_NAMES))
        sent: dict[str, Any] = {name: message[name] for name in ("role", "tool_call_id") if name in message}
        values = _read(TURN, {**sent, "state": str(TurnState.ENDED), "content": _content(message, at)}, at)
        parent = turns[-1].public_id if turns else ""
        turns.append(TurnSent(secrets.token_hex(12), parent, values["role"], values["state"], turn_body(values)))
    _save(imported, user_id, {}, turns, "")


def _import_chatgpt(imported: Imported, user_id: int, text: str, first: int) -> None:
    # The file is an array, and only objects are read.
    plain = json_object_read(b'{"conversations":' + text.encode() + b"}", page_bounds())
    if len(plain) != 1:
        raise ApiError("invalid_value", "text must be the array of conversations.json", "text")
    chats = _list_of_objects(plain["conversations"], "conversations")
    if not 1 <= len(chats) <= MAX_IMPORTED:
        message = f"text must have 1 to {MAX_IMPORTED} conversations, got {len(chats)}"
        raise ApiError("invalid_value", f"{message}; divide the file", "text")
    for number, chat in enumerate(chats, first):
        place = f"conversations.{number}"
        export = chatgpt_read(chat)
        imported.note(place, dict.fromkeys(export.unknown))
        if not export.nodes:
            imported.note(place, ["mapping without texts"])
            continue
        ids = {node.id: secrets.token_hex(12) for node in export.nodes}
        turns = []
        for node in export.nodes:
            content = answer_content(node.text, []) if node.role == "assistant" else node.text
            known = {"role": node.role, "state": str(TurnState.ENDED), "content": content, "model": node.model or None}
            values = _read(TURN, {name: value for name, value in known.items() if value is not None}, place)
            turns.append(
                TurnSent(ids[node.id], ids.get(node.parent, ""), node.role, values["state"], turn_body(values))
            )
        title = chat.get("title")
        fields = {"title": title_of(title)} if isinstance(title, str) else {}
        _save(imported, user_id, fields, turns, ids.get(export.head, ""))


def _content(message: Mapping[str, Any], place: str) -> Any:
    """Return the content of a turn from a message of OpenAI's API."""
    calls, content = message.get("tool_calls"), message.get("content")
    if message.get("role") != "assistant" or not calls:
        return "" if content is None else content
    functions = [(call, call.get("function")) for call in _list_of_objects(calls, f"{place}.tool_calls")]
    named = [
        {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
        for call, function in functions
        if isinstance(function, dict)
    ]
    return answer_content(content_text(content), named)


def _save(imported: Imported, user_id: int, fields: Mapping[str, Any], turns: list[TurnSent], head: str) -> None:
    made = conversation_create(user_id=user_id, public_id=secrets.token_hex(12), fields=fields)
    imported.conversations.append(turns_add(user_id=user_id, conversation_id=made.public_id, sent=turns, head=head))


def _read(schema: Any, values: Mapping[str, Any], place: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = schema.run_validation(dict(values))
    except ValidationError as error:
        raise problems_error(field_problems(error.detail, place)) from None
    return read


def _read_id(value: Any, place: str) -> str:
    return field_read(f"{place}.id", id_read, value)


def _list_of_objects(value: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ApiError("invalid_type", f"{place} must be an array of objects", place)
    if len(value) > MAX_TURNS:
        raise ApiError("invalid_value", f"{place} must have at most {MAX_TURNS} items, got {len(value)}", place)
    return value
