"""Read input items into the form in which they are kept and listed. The chat's schema checks the parts of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings

from chat.api.request.fields import echo
from chat.api.responses.ids import item_id
from chat.api.responses.tools import NAMESPACE
from chat.errors import Problems

Item = dict[str, Any]
LIMITS = settings.LIGHTCONE_LIMITS
ROLES = ("user", "assistant", "system", "developer")
STATUSES = ("in_progress", "completed", "incomplete")
KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
PARTS = ("input_text", "output_text", "text", "refusal", "input_file", "input_image")
MEDIA_KEYS = {
    "input_file": ("file_data", "file_id", "file_url", "filename", "detail"),
    "input_image": ("image_url", "file_id", "detail"),
}
OUTPUT_PARTS = ("input_text", "output_text", "text", "input_file", "input_image")


class InputReader:
    """A reader of the `input` of one request. The items get ids of `response_id`."""

    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self._problems = Problems()

    def read(self, given: Any) -> list[Item]:
        """Return the items in order. Raises ApiError that names the first bad ones."""
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        items: list[Item] = []
        if not isinstance(given, list):
            self._problems.refuse("input", f"must be a string or an array of items, got {echo(given)}", "invalid_type")
        elif not given:
            self._problems.refuse("input", "must hold at least one item")
        elif len(given) > LIMITS.max_messages:
            self._problems.refuse("input", f"must have at most {LIMITS.max_messages} items, got {len(given)}")
        else:
            for index, item in enumerate(given):
                items += self._item(item, index)
                if self._problems.is_full:
                    break
        self._problems.raise_any()
        return items

    def _item(self, item: Any, index: int) -> list[Item]:
        path = f"input.{index}"
        if not isinstance(item, dict):
            self._problems.refuse(path, f"must be an item, got {echo(item)}", "invalid_type")
            return []
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference"
        if kind not in KINDS:
            known = ", ".join(KINDS)
            self._problems.refuse(
                f"{path}.type", f"must be one of {known}, as this server runs no tools of its own; got {echo(kind)}"
            )
            return []
        readers: dict[str, Callable[[Item, str], Item]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._call_output,
            "reasoning": self._reasoning,
            "item_reference": self._reference,
        }
        read = readers[kind](item, path)
        given_id = self._text(item, "id", path, is_required=kind == "item_reference")
        if kind != "item_reference":
            read = {"id": given_id or item_id(kind, self._response_id, index, is_input=True), "type": kind, **read}
            read["status"] = self._status(item, path)
        return [read]

    def _message(self, item: Item, path: str) -> Item:
        role = item.get("role")
        if role not in ROLES:
            self._problems.refuse(f"{path}.role", f"must be one of {', '.join(ROLES)}; got {echo(role)}")
            return {}
        content = item.get("content")
        kind = "output_text" if role == "assistant" else "input_text"
        if isinstance(content, str):
            return {"role": role, "content": [_text_part(kind, content)]}
        return {"role": role, "content": self._parts(content, f"{path}.content", PARTS, kind)}

    def _parts(self, content: Any, path: str, kinds: tuple[str, ...], kind: str) -> list[Item]:
        if not isinstance(content, list):
            self._problems.refuse(path, f"must be a string or an array of parts, got {echo(content)}", "invalid_type")
            return []
        parts = []
        for index, part in enumerate(content):
            place = f"{path}.{index}"
            given = part.get("type") if isinstance(part, dict) else None
            if given not in kinds:
                self._problems.refuse(f"{place}.type", f"must be one of {', '.join(kinds)}; got {echo(given)}")
            elif given in MEDIA_KEYS:
                parts.append(self._media(given, part, place))
            elif given == "refusal":
                parts.append({"type": given, "refusal": self._text(part, "refusal", place, is_required=True)})
            else:
                parts.append(_text_part(kind, self._text(part, "text", place, is_required=True)))
            if self._problems.is_full:
                break
        return parts

    def _media(self, kind: str, part: Item, path: str) -> Item:
        """Return the known keys of a media part, all texts. Others could be nested too deeply to be kept."""
        read: Item = {"type": kind}
        for name in MEDIA_KEYS[kind]:
            if part.get(name) is not None:
                read[name] = self._text(part, name, path)
        return read

    def _call(self, item: Item, path: str) -> Item:
        read = {name: self._text(item, name, path, is_required=True) for name in ("call_id", "name", "arguments")}
        namespace = self._text(item, NAMESPACE, path)
        return {**read, NAMESPACE: namespace} if namespace else read

    def _call_output(self, item: Item, path: str) -> Item:
        output = item.get("output")
        if not isinstance(output, str):
            output = self._parts(output, f"{path}.output", OUTPUT_PARTS, "input_text")
        return {"call_id": self._text(item, "call_id", path, is_required=True), "output": output}

    def _reasoning(self, item: Item, path: str) -> Item:
        """Read a reasoning item: its text, in `content` or, from other servers, in `summary` alone."""
        read: Item = {"encrypted_content": None}
        for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
            parts = item.get(name) or []
            is_list = isinstance(parts, list)
            if not is_list or any(not isinstance(part, dict) or part.get("type") != kind for part in parts):
                self._problems.refuse(f"{path}.{name}", f"must be an array of {kind} parts")
                parts = []
            texts = [
                self._text(part, "text", f"{path}.{name}.{index}", is_required=True) for index, part in enumerate(parts)
            ]
            read[name] = [{"type": kind, "text": text} for text in texts]
        return read

    def _reference(self, item: Item, path: str) -> Item:
        return {"type": "item_reference", "id": item.get("id"), "path": path}

    def _text(self, item: Item, name: str, path: str, *, is_required: bool = False) -> str:
        value = item.get(name)
        is_id = name in ("id", "call_id", "name")
        if isinstance(value, str) and (not is_id or 0 < len(value) <= LIMITS.max_label_chars):
            return value
        if value is None and not is_required:
            return ""
        code = "missing_required_parameter" if value is None else "invalid_type"
        message = f"must be a string of 1 to {LIMITS.max_label_chars} characters" if is_id else "must be a string"
        self._problems.refuse(f"{path}.{name}", f"{message}, got {echo(value)}", code)
        return ""

    def _status(self, item: Item, path: str) -> str:
        status = item.get("status") or "completed"
        if status not in STATUSES:
            self._problems.refuse(f"{path}.status", f"must be one of {', '.join(STATUSES)}; got {echo(status)}")
        return str(status)


def _text_part(kind: str, text: str) -> Item:
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}
