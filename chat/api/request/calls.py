"""Calls of functions in the messages of one request: in the form that templates know, with ids by which results find them."""

from __future__ import annotations

from typing import Any

from chat.api.request.fields import echo
from chat.api.request.strict_json import json_bounds, json_read
from chat.errors import ApiError, Problems
from engine.api import Json


class UnansweredCalls:
    """Calls that have no result yet. The work of a conversation is linear, in whatever order its calls and results come."""

    def __init__(self) -> None:
        self._num_made = 0
        self._made: dict[str, list[tuple[int, str]]] = {}
        self._answered: dict[str, int] = {}
        """By id: how many calls had been made when its result came, as an id may be used again."""

    def add(self, name: str, call_id: str) -> None:
        """A call of the function `name` was made."""
        self._num_made += 1
        self._made.setdefault(name, []).append((self._num_made, call_id))

    def remove(self, call_id: str) -> None:
        """A result has come that names its call."""
        self._answered[call_id] = self._num_made

    def take_latest(self, name: str) -> str | None:
        """The id of the latest call of the function `name` without a result, which has one hereby."""
        made = self._made.get(name, [])
        while made:
            number, call_id = made.pop()
            if number > self._answered.get(call_id, 0):
                return call_id
        return None


class CallReader:
    """Reads calls in order, and remembers which were made and not answered."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._num_made_ids = 0
        self._latest: dict[str, str] = {}
        self._unanswered = UnansweredCalls()
        self._bounds = json_bounds()

    def read(self, calls: list[Any], path: str) -> list[Json]:
        """Calls as templates know them."""
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
        """The one call of the deprecated `function_call`."""
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            self._problems.refuse(path, "must be an object with a name")
            return []
        return [self.call({**call, "arguments": self.arguments(call.get("arguments"))}, None)]

    def call(self, function: dict[str, Any], call_id: Any) -> dict[str, Json]:
        """A call of `function`, noted as made; without an id it gets one."""
        if not isinstance(call_id, str):
            self._num_made_ids += 1
            call_id = f"call{self._num_made_ids:05d}"  # NOTE: nine letters and digits, as some templates insist
        self._latest[function["name"]] = call_id
        self._unanswered.add(function["name"], call_id)
        return {"id": call_id, "type": "function", "function": function}

    def arguments(self, arguments: Any) -> Any:
        """Templates want an object: JSON text is parsed as strictly as bodies are, "" and null are {}, any other text stays text.

        Raises ApiError where the texts of all calls have more values than a body may have.
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
        """The id of the latest call of the function `name`, answered or not."""
        return self._latest.get(name) if isinstance(name, str) else None

    def answer(self, name: str) -> str | None:
        """The id of the latest unanswered call of the function `name`, which is answered hereby."""
        return self._unanswered.take_latest(name)

    def note_answer(self, call_id: Any) -> None:
        """A result has come that names its call."""
        if isinstance(call_id, str):
            self._unanswered.remove(call_id)

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
        return {**function, "arguments": self.arguments(function.get("arguments"))}
