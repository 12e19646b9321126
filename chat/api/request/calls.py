"""Function calls in the messages of one request, in the form that templates know, with ids that connect them to
results.
"""

from __future__ import annotations

from typing import Any

from chat.api.request.fields import echo
from chat.api.request.strict_json import json_bounds, json_read
from chat.errors import ApiError, Problems
from engine.api import Json


class UnansweredCalls:
    """The calls without a result. The work for a conversation is linear, in whatever order its calls and results
    come.
    """

    def __init__(self) -> None:
        self._num_made = 0
        self._made: dict[str, list[tuple[int, str]]] = {}
        self._answered: dict[str, int] = {}
        """From an id to the number of calls that were made before its result, as an id may be used again."""

    def add(self, name: str, call_id: str) -> None:
        """Note a call of the function `name`."""
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
        """Return calls as templates know them."""
        read: list[Json] = []
        for number, call in enumerate(calls):
            function = self._function(call, f"{path}.{number}")
            if function is not None and not isinstance(call.get("id"), str | None):
                self._problems.refuse(
                    f"{path}.{number}.id", f"must be a string, got {echo(call['id'])}", "invalid_type"
                )
            elif function is not None:
                others = {name: value for name, value in call.items() if name != "custom"}
                read.append({**others, **self.call(function, call.get("id"))})
            if self._problems.is_full:
                break
        return read

    def read_old(self, call: Any, path: str) -> list[Json]:
        """Return the one call of the deprecated `function_call`."""
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
        """Return arguments as the object that templates want.

        JSON text is parsed as strictly as bodies, "" and null become {}.

        Any other text stays text. Raises ApiError if the texts of all calls have more values than a body may have.
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
        """Return the id of the latest call of the function `name`, answered or not."""
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
