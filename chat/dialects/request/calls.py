"""Calls of functions in the messages of one request: in the form that templates know, with ids by which results find them."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from chat.dialects.request.fields import echo
from chat.dialects.request.problems import Problems
from chat.dialects.request.strict_json import json_read
from chat.errors import ApiError
from engine.api import Json


class CallReader:
    """Reads calls in order, and remembers which were made and not answered."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._num_made_ids = 0
        self._latest: dict[str, str] = {}
        self._unanswered: list[tuple[str, str]] = []

    def read(self, calls: list[Any], path: str) -> list[Json]:
        """Calls as templates know them."""
        read: list[Json] = []
        for number, call in enumerate(calls):
            function = self._function(call, f"{path}.{number}")
            if function is not None and not isinstance(call.get("id"), str | None):
                self._problems.refuse(f"{path}.{number}.id", f"must be a string, got {echo(call['id'])}", "invalid_type")
            elif function is not None:
                others = {name: value for name, value in call.items() if name != "custom"}
                read.append({**others, **self.call(function, call.get("id"))})
            if self._problems.is_full:
                break
        return read

    def read_old(self, call: Any, path: str) -> list[Json]:
        """The one call of the deprecated `function_call`."""
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            self._problems.refuse(path, "must be an object with a name")
            return []
        return [self.call({**call, "arguments": arguments_read(call.get("arguments"))}, None)]

    def call(self, function: dict[str, Any], call_id: Any) -> dict[str, Json]:
        """A call of `function`, noted as made; without an id it gets one."""
        if not isinstance(call_id, str):
            self._num_made_ids += 1
            call_id = f"call{self._num_made_ids:05d}"  # NOTE: nine letters and digits, as some templates insist
        self._latest[function["name"]] = call_id
        self._unanswered.append((function["name"], call_id))
        return {"id": call_id, "type": "function", "function": function}

    def latest(self, name: Any) -> str | None:
        """The id of the latest call of the function `name`, answered or not."""
        return self._latest.get(name) if isinstance(name, str) else None

    def answer(self, name: str) -> str | None:
        """The id of the latest unanswered call of the function `name`, which is answered hereby."""
        for index in range(len(self._unanswered) - 1, -1, -1):
            called, call_id = self._unanswered[index]
            if called == name:
                del self._unanswered[index]
                return call_id
        return None

    def note_answer(self, call_id: Any) -> None:
        """A result has come that names its call."""
        self._unanswered = [call for call in self._unanswered if call[1] != call_id]

    def _function(self, call: Any, path: str) -> dict[str, Any] | None:
        """`{name, arguments}` with arguments as an object where they are JSON; None after a problem."""
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
        return {**function, "arguments": arguments_read(function.get("arguments"))}


def arguments_read(arguments: Any) -> Any:
    """Templates want an object: JSON text is parsed as strictly as bodies are, "" and null are {}, any other text stays text."""
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    limits = settings.LIGHTCONE_LIMITS
    try:
        return json_read(arguments.encode(), max_depth=limits.max_json_depth, max_digits=limits.max_json_digits)
    except ApiError:
        return arguments
