"""Turn the system prompt and the turns, block by block, into messages of the one request schema.

Consecutive turns of one role become one message; tool results are messages of their own. Content that no template could
show is refused. The tenth problem ends the walk.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from chat.api.anthropic.documents import DocumentReader, Part, file_id_read, text_part
from chat.api.anthropic.names import MessageNames
from chat.api.request.fields import echo
from chat.errors import Problems

BLOCKS = {
    "user": ("text", "image", "document", "search_result", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
RESULT_BLOCKS = ("text", "image", "document", "search_result")
ELSEWHERE = ("server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "tool_reference", "compaction")
"""Blocks that only Anthropic's servers make or read, beside those that end in `_tool_result`."""
ERROR = "Error:"


class ConversationReader:
    """One pass over one request. `names` gets the origin of every part once all of it is good."""

    def __init__(self, names: MessageNames) -> None:
        self._names = names
        self._sent: dict[str, str] = {}
        self._problems = Problems()
        self._documents = DocumentReader(self._problems, self._text_blocks)
        self._messages: list[dict[str, Any]] = []
        self._num_blocks = 0

    def read(self, system: str | list[Any] | None, turns: list[Any]) -> list[dict[str, Any]]:
        """Return the messages in order. Raises ApiError with up to ten problems."""
        if system:
            self._content("system", system, "system")
        for index, turn in enumerate(turns):
            self._turn(turn, f"messages.{index}")
            if self._problems.is_full:
                break
        self._check_end(len(turns) - 1)
        self._problems.raise_any()
        for path, sent in self._sent.items():
            self._names.note(path, sent)
        return self._messages

    def _turn(self, turn: Any, path: str) -> None:
        if not isinstance(turn, dict):
            self._problems.refuse(path, f"must be a message object, got {echo(turn)}", "invalid_type")
            return
        role, content = turn.get("role"), turn.get("content")
        if role is None:
            self._problems.refuse(f"{path}.role", "is required", "missing_required_parameter")
        elif not isinstance(role, str) or role not in BLOCKS:
            self._problems.refuse(f"{path}.role", f"must be user, assistant or system, got {echo(role)}")
        elif content is None:
            self._problems.refuse(f"{path}.content", "is required", "missing_required_parameter")
        else:
            self._content(role, content, path, f"{path}.content")

    def _content(self, role: str, content: Any, path: str, content_path: str | None = None) -> None:
        """Add text or blocks to the message of `role` that is being written, or to a new one."""
        content_path = content_path or path
        if isinstance(content, str):
            self._add(role, [text_part(content)], path, content_path)
            return
        blocks = self._blocks(content, content_path)
        if not blocks and self._takes(role) is None:
            self._open(role, path)
        for index, block in enumerate(blocks):
            self._block(role, block, path, f"{content_path}.{index}")
            if self._problems.is_full:
                return

    def _blocks(self, content: Any, path: str) -> list[Any]:
        """Return a list of blocks, within the number that a request may have; empty after a problem."""
        if not isinstance(content, list):
            self._problems.refuse(path, f"must be a string or an array of blocks, got {echo(content)}", "invalid_type")
            return []
        limit = settings.LIGHTCONE_LIMITS.max_parts
        self._num_blocks += len(content)
        if self._num_blocks > limit:
            self._problems.refuse(path, f"brings the blocks of all messages above the limit of {limit}")
            return []
        return content

    def _block(self, role: str, block: Any, path: str, block_path: str) -> None:
        kind = self._kind(block, block_path, BLOCKS[role], f"a message of the {role}")
        if kind == "tool_result":
            self._tool_result(block, block_path)
        elif kind == "tool_use":
            self._tool_use(block, path, block_path)
        elif kind == "thinking":
            thought = self._text(block, "thinking", block_path)
            self._add(role, [{"type": "thinking", "thinking": thought}], path, block_path)
        elif kind == "redacted_thinking":
            self._text(block, "data", block_path)  # NOTE: only who wrote it can read it; the model goes without
            if self._takes(role) is None:
                self._open(role, path)
        elif kind is not None:
            self._add(role, self._parts(kind, block, block_path), path, block_path)

    def _kind(self, block: Any, path: str, known: tuple[str, ...], place: str) -> str | None:
        """Return the type of a block that may stand here; None after a problem."""
        if not isinstance(block, dict):
            self._problems.refuse(path, f"must be a content block, got {echo(block)}", "invalid_type")
            return None
        kind = block.get("type")
        if isinstance(kind, str) and kind in known:
            return kind
        is_elsewhere = isinstance(kind, str) and (kind in ELSEWHERE or kind.endswith("_tool_result"))
        if is_elsewhere:
            message = f"cannot be a {str(kind)[:200]}: this server has no tools of its own; leave the block out"
            self._problems.refuse(path, message, "unsupported_parameter")
        else:
            self._problems.refuse(f"{path}.type", f"must be one of {', '.join(known)} in {place}; got {echo(kind)}")
        return None

    def _parts(self, kind: str, block: dict[str, Any], path: str) -> list[Part]:
        if kind == "document":
            return self._documents.document(block, path)
        if kind == "search_result":
            return self._documents.search_result(block, path)
        if kind == "image":
            return self._image(block.get("source"), f"{path}.source")
        return [text_part(self._text(block, "text", path))]

    def _image(self, source: Any, path: str) -> list[Part]:
        """Return the part of an image; whether the model sees is asked later."""
        kind = source.get("type") if isinstance(source, dict) else None
        if kind == "base64":
            media_type, data = source.get("media_type"), source.get("data")
            if media_type not in IMAGE_TYPES:
                message = f"must be one of {', '.join(IMAGE_TYPES)}; got {echo(media_type)}"
                self._problems.refuse(f"{path}.media_type", message)
            elif not isinstance(data, str) or not data:
                self._problems.refuse(f"{path}.data", f"must be the image in base64, got {echo(data)}")
            else:
                return [{"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}]
        elif kind == "url":
            url = source.get("url")
            if isinstance(url, str) and url:
                return [{"type": "image_url", "image_url": {"url": url}}]
            code = "invalid_value" if url == "" else "invalid_type"
            self._problems.refuse(f"{path}.url", f"must be the address of an image, got {echo(url)}", code)
        elif kind == "file":
            file_id = file_id_read(source, path, self._problems)
            return [] if file_id is None else [{"type": "image_url", "image_url": {"file_id": file_id}}]
        elif isinstance(source, dict):
            self._problems.refuse(f"{path}.type", f"must be base64, url or file, got {echo(kind)}")
        else:
            self._problems.refuse(path, f"must be an object, got {echo(source)}", "invalid_type")
        return []

    def _tool_use(self, block: dict[str, Any], path: str, block_path: str) -> None:
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
        if not isinstance(call_id, str):
            self._problems.refuse(f"{block_path}.id", f"must be a string, got {echo(call_id)}", "invalid_type")
        elif not isinstance(name, str) or not name:
            self._problems.refuse(f"{block_path}.name", f"must be the name of a tool, got {echo(name)}", "invalid_type")
        elif not isinstance(arguments, dict):
            self._problems.refuse(f"{block_path}.input", f"must be an object, got {echo(arguments)}", "invalid_type")
        else:
            place = len(self._messages) - 1
            message = self._takes("assistant", has_calls=True)
            if message is None:
                place, message = self._open("assistant", path)
            calls = message.setdefault("tool_calls", [])
            call_path = f"messages.{place}.tool_calls.{len(calls)}"
            sent = {
                call_path: block_path,
                f"{call_path}.function": block_path,
                f"{call_path}.function.arguments": f"{block_path}.input",
            }
            self._sent |= sent
            calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def _tool_result(self, block: dict[str, Any], path: str) -> None:
        """Add the message of a tool. The text of a failed one says so, as templates know no other way."""
        call_id, content, is_error = block.get("tool_use_id"), block.get("content"), block.get("is_error")
        if not isinstance(call_id, str):
            self._problems.refuse(f"{path}.tool_use_id", f"must be a string, got {echo(call_id)}", "invalid_type")
        if not isinstance(is_error, bool | None):
            self._problems.refuse(f"{path}.is_error", f"must be true or false, got {echo(is_error)}", "invalid_type")
        place, message = self._open("tool", path)
        message["tool_call_id"] = call_id
        self._sent[f"messages.{place}.tool_call_id"] = f"{path}.tool_use_id"
        if content is None or isinstance(content, str):
            text = content or ""
            message["content"] = f"{ERROR} {text}".rstrip() if is_error else text
            return
        if is_error:
            message["content"].append(text_part(ERROR))
        for index, inner in enumerate(self._blocks(content, f"{path}.content")):
            inner_path = f"{path}.content.{index}"
            kind = self._kind(inner, inner_path, RESULT_BLOCKS, "the result of a tool")
            if kind is not None:
                self._append(place, message, self._parts(kind, inner, inner_path), inner_path)
            if self._problems.is_full:
                return

    def _text_blocks(self, content: Any, path: str) -> list[str]:
        """Return the texts of a list that may hold nothing else."""
        texts: list[str] = []
        for index, block in enumerate(self._blocks(content, path)):
            if self._kind(block, f"{path}.{index}", ("text",), "this place") is not None:
                texts.append(self._text(block, "text", f"{path}.{index}"))
            if self._problems.is_full:
                break
        return texts

    def _text(self, block: dict[str, Any], name: str, path: str) -> str:
        value = block.get(name)
        if isinstance(value, str):
            return value
        self._problems.refuse(f"{path}.{name}", f"must be a string, got {echo(value)}", "invalid_type")
        return ""

    def _add(self, role: str, parts: list[Part], path: str, sent: str) -> None:
        """Put parts that came from `sent` at the end of the message of `role`."""
        place, message = len(self._messages) - 1, self._takes(role)
        if message is None:
            place, message = self._open(role, path)
        self._append(place, message, parts, sent)

    def _append(self, place: int, message: dict[str, Any], parts: list[Part], sent: str) -> None:
        for part in parts:
            path = f"messages.{place}.content.{len(message['content'])}"
            self._sent[path] = sent
            if part["type"] == "file":
                self._sent |= {f"{path}.file": f"{sent}.source", f"{path}.file.file_url": f"{sent}.source.url"}
                self._sent[f"{path}.file.detail"] = f"{sent}.detail"
            elif part["type"] == "image_url":
                self._sent[f"{path}.image_url"] = f"{sent}.source"
            message["content"].append(part)

    def _takes(self, role: str, *, has_calls: bool = False) -> dict[str, Any] | None:
        """Return the last message if it is of `role` and takes what comes next.

        Text behind calls would come to stand before.
        """
        last = self._messages[-1] if self._messages else None
        if last is None or last["role"] != role or ("tool_calls" in last and not has_calls):
            return None
        return last

    def _open(self, role: str, path: str) -> tuple[int, dict[str, Any]]:
        place = len(self._messages)
        self._messages.append({"role": role, "content": []})
        self._sent[f"messages.{place}"] = path
        return place, self._messages[-1]

    def _check_end(self, last_turn: int) -> None:
        last = self._messages[-1] if self._messages else {}
        if last.get("role") == "assistant" and "tool_calls" in last:
            message = "must not end with a tool_use; send its tool_result in a message of the user"
            self._problems.refuse(f"messages.{last_turn}", message)
