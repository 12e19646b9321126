"""Read the content of messages and their function calls.

Media that the model cannot take is refused before it is decoded or fetched. File parts stay as sent, for the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chat.api.request.audio_parts import AUDIO_EMBEDS, AUDIO_URL, INPUT_AUDIO, AudioPartReader
from chat.api.request.fields import echo
from chat.api.request.file_parts import FilePartReader
from chat.api.request.image_parts import IMAGE_EMBEDS, ImagePartReader, MediaRules, part_type
from chat.api.request.named_files import AttachedFiles
from chat.api.request.strict_json import json_bounds, json_read
from chat.api.request.video_parts import VIDEO_URL, VideoPartReader
from chat.errors import ApiError, Problems
from engine.api import Json

TEXT_PARTS = ("text", "input_text", "output_text")
ABSENT = object()


def is_text(value: Any, path: str, problems: Problems) -> bool:
    """Return True for a string or null. Refuse anything else."""
    if not isinstance(value, str | None):
        problems.refuse(path, f"must be a string, got {echo(value)}", "invalid_type")
        return False
    return True


@dataclass(frozen=True, slots=True)
class Content:
    """A content as a template gets it."""

    value: str | list[Json] = ""
    thoughts: str | None = None
    """An assistant's thinking parts."""
    is_open: bool = False
    """The last thinking part is not closed."""


class PartReader:
    """Reads the contents of all messages of one request; counts their parts."""

    def __init__(
        self, problems: Problems, *, model: str, max_parts: int, files: AttachedFiles, media: MediaRules
    ) -> None:
        self._problems = problems
        self._files = FilePartReader(problems, files, () if media.is_taken else media.seeing)
        self._images = ImagePartReader(problems, media, model, files)
        self._videos = VideoPartReader(problems, media, self._images)
        self._sounds = AudioPartReader(problems, media, self._images)
        self._max_parts = max_parts
        self._num_parts = 0

    def read(self, content: Any, path: str, role: str) -> Content:
        """Return the content at `path`. Absent content is empty; only an assistant's may be null."""
        if isinstance(content, str):
            return Content(content)
        if content is ABSENT or (content is None and role == "assistant"):
            return Content()
        if not isinstance(content, list):
            self._problems.refuse(path, f"must be a string or an array of parts, got {echo(content)}", "invalid_type")
            return Content()
        self._num_parts += len(content)
        if self._num_parts > self._max_parts:
            self._problems.refuse(path, f"brings the parts of all messages above the limit of {self._max_parts}")
            return Content()
        parts: list[Json] = []
        thoughts: list[str] = []
        is_open = False
        for index, part in enumerate(content):
            if role == "assistant" and isinstance(part, dict) and part.get("type") == "thinking":
                thought, closed = part.get("thinking"), part.get("closed")
                has_thought = is_text(thought, f"{path}.{index}.thinking", self._problems)
                thoughts.append(thought if has_thought and thought else "")
                if not isinstance(closed, bool | None):
                    message = f"must be true or false, got {echo(closed)}"
                    self._problems.refuse(f"{path}.{index}.closed", message, "invalid_type")
                is_open = closed is False
            else:
                parts += self._part(part, f"{path}.{index}")
            if self._problems.is_full:
                break
        return Content(parts, "\n".join(thoughts) if thoughts else None, is_open)

    def _part(self, part: Any, path: str) -> list[Json]:
        """Return the part for the template; nothing after a problem and for a text part without text."""
        if isinstance(part, str):
            return [{"type": "text", "text": part}]
        if not isinstance(part, dict):
            self._problems.refuse(path, f"must be a content part, got {echo(part)}", "invalid_type")
            return []
        kind = part_type(part)
        if kind == "image_url":
            return self._images.read(part.get("image_url"), f"{path}.image_url", part.get("uuid"))
        if kind == IMAGE_EMBEDS:
            return self._images.read_vectors(part.get(IMAGE_EMBEDS), f"{path}.{IMAGE_EMBEDS}")
        if kind == VIDEO_URL:
            return self._videos.read(part.get(VIDEO_URL), f"{path}.{VIDEO_URL}", part.get("uuid"))
        if kind in (INPUT_AUDIO, AUDIO_URL):
            return self._sounds.read(kind, part.get(kind), f"{path}.{kind}", part.get("uuid"))
        if kind == AUDIO_EMBEDS:
            return self._sounds.read_vectors(part.get(AUDIO_EMBEDS), f"{path}.{AUDIO_EMBEDS}")
        if kind == "file":
            return self._files.read(part.get("file"), f"{path}.file")
        if kind not in (*TEXT_PARTS, "refusal", "thinking"):
            known = "text, refusal, thinking, file, image_url, input_audio, …"
            self._problems.refuse(path, f"must be of a known type ({known}), got {echo(kind)}")
            return []
        name = "text" if kind in TEXT_PARTS else str(kind)
        text = part.get(name)
        if not is_text(text, f"{path}.{name}", self._problems) or text is None:
            return []
        return [{"type": "text", "text": text}]


class UnansweredCalls:
    """The calls without a result. The work for a conversation is linear, in whatever order calls and results come."""

    def __init__(self) -> None:
        self._num_made = 0
        self._made: dict[str, list[tuple[int, str]]] = {}
        self._answered: dict[str, int] = {}
        """From an id to the number of calls that were made before its result, as an id may be used again."""

    def add(self, name: str, call_id: str) -> None:
        self._num_made += 1
        self._made.setdefault(name, []).append((self._num_made, call_id))

    def remove(self, call_id: str) -> None:
        """Note a result that names its call."""
        self._answered[call_id] = self._num_made

    def take_latest(self, name: str) -> str | None:
        """Return the id of the latest call of `name` without a result, and count it as answered."""
        made = self._made.get(name, [])
        while made:
            number, call_id = made.pop()
            if number > self._answered.get(call_id, 0):
                return call_id
        return None


class CallReader:
    """Reads calls in order, and remembers those without a result."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._num_made_ids = 0
        self._latest: dict[str, str] = {}
        self._unanswered = UnansweredCalls()
        self._bounds = json_bounds()

    def read(self, calls: list[Any], path: str) -> list[Json]:
        read: list[Json] = []
        for number, call in enumerate(calls):
            function = self._function(call, f"{path}.{number}")
            if function is not None and is_text(call.get("id"), f"{path}.{number}.id", self._problems):
                others = {name: value for name, value in call.items() if name != "custom"}
                read.append({**others, **self.call(function, call.get("id"))})
            if self._problems.is_full:
                break
        return read

    def read_old(self, call: Any, path: str) -> list[Json]:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            self._problems.refuse(path, "must be an object with a name")
            return []
        return [self.call({**call, "arguments": self.arguments(call.get("arguments"))}, None)]

    def call(self, function: dict[str, Any], call_id: Any) -> dict[str, Json]:
        """Return a call of `function` and note it. A call without an id gets one."""
        if not isinstance(call_id, str):
            self._num_made_ids += 1
            call_id = f"call{self._num_made_ids:05d}"  # NOTE: nine letters and digits, as some templates insist
        self._latest[function["name"]] = call_id
        self._unanswered.add(function["name"], call_id)
        return {"id": call_id, "type": "function", "function": function}

    def arguments(self, arguments: Any) -> Any:
        """Return arguments as the object that templates want; {} for "" and null. Text that is no JSON stays text.

        Raises ApiError if the texts of all calls have more values than a body may have.
        """
        if arguments is None or arguments == "":
            return {}
        if not isinstance(arguments, str):
            return arguments
        try:
            return json_read(arguments.encode(), self._bounds)
        except ApiError as error:
            if error.code == "request_too_large":
                raise
            return arguments

    def latest(self, name: Any) -> str | None:
        return self._latest.get(name) if isinstance(name, str) else None

    def answer(self, name: str) -> str | None:
        """Return the id of the latest unanswered call of the function `name`, and count it as answered."""
        return self._unanswered.take_latest(name)

    def note_answer(self, call_id: Any) -> None:
        """Note a result that names its call."""
        if isinstance(call_id, str):
            self._unanswered.remove(call_id)

    def _function(self, call: Any, path: str) -> dict[str, Any] | None:
        """Return `{name, arguments}`, with arguments as an object if they are JSON; None after a problem."""
        if not isinstance(call, dict):
            self._problems.refuse(path, f"must be a tool call, got {echo(call)}", "invalid_type")
            return None
        custom = call.get("custom")
        if isinstance(custom, dict) and isinstance(custom.get("name"), str):
            return {"name": custom["name"], "arguments": {"input": custom.get("input")}}
        if call.get("type") == "custom":
            self._problems.refuse(f"{path}.custom", "must be an object with a name")
            return None
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            self._problems.refuse(f"{path}.function", "must be an object with a name")
            return None
        return {**function, "arguments": self.arguments(function.get("arguments"))}
