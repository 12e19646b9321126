"""Events cut, joined, lost or repeated on the way give the same answer in every dialect.

Other tests of dialects send one event per call. Here a real `RunReader` gets packed entries as a worker writes them.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from chat.relay.state.records import join_deltas, pack_events
from chat.relay.state.runs import LogEntry
from chat.relay.web.reader import RunReader
from engine.api import ChoiceFinished, Delta, Event, FinishReason, Outcome, Payload, ToolCallDelta
from tests.chat.api.conftest import ADMITTED, Scripted, completed, finished
from tests.examples import examples

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ASK = {"messages": [{"role": "user", "content": "hi"}], "model": "tiny", "max_tokens": 50}
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "lightcone": ("/v1/chat/completions", {**ASK, "tools": [TOOL]}),
    "scale": ("/v4/beta/chat/completions", {**ASK, "tools": [TOOL]}),
    "messages": ("/v1/messages", {**ASK, "tools": [{"name": "add", "input_schema": {"type": "object"}}]}),
    "responses": (
        "/v1/responses",
        {
            "input": "hi",
            "model": "tiny",
            "store": False,
            "tools": [{"type": "function", "name": "add", "parameters": None}],
        },
    ),
    "texts": ("/v1/completions", {"prompt": "hi", "model": "tiny", "max_tokens": 50}),
}
TEXTS = ("content", "reasoning", "reasoning_content", "text", "thinking", "partial_json", "arguments", "delta")
"""Fields of stream events with a piece of text; the joined text must not depend on the split."""
PASSING = ("created", "created_at", "completed_at", "id", "item_id", "signature")
"""Fields that differ from request to request."""

pieces = st.lists(st.sampled_from(["a", " b", "ß", "漢", "\n", '"', "", "c d"]), max_size=6)


class LossySource:
    """The web process of a reader: it can read the log, which has every entry."""

    def __init__(self, log: list[LogEntry]) -> None:
        self.log = log
        self.runs: Any = self

    async def read_log(self, run_id: str, *, attempt: int, position: int) -> list[LogEntry]:
        return [entry for entry in self.log if entry.position >= position]

    def leave(self, reader: RunReader, *, is_over: bool) -> None:
        """Nothing is held for a reader."""

    async def stop(self, run_id: str, outcome: Outcome) -> None:
        raise AssertionError("no answer stops its run")


def numbered(payloads: list[Payload]) -> list[Event]:
    events, position = [], 0
    for payload in payloads:
        count = len(payload.token_ids) if isinstance(payload, Delta) else 1
        events.append(Event(position, count, payload))
        position += count
    return events


def entries(events: list[Event], cuts: set[int]) -> list[LogEntry]:
    """Return the events as the publisher packs them, cut behind these indices."""
    groups: list[list[Event]] = [[]]
    for index, event in enumerate(events):
        groups[-1].append(event)
        if index in cuts:
            groups.append([])
    joined = [join_deltas(group) for group in groups if group]
    return [LogEntry(1, group[-1].start + group[-1].count - 1, pack_events(group)) for group in joined]


def spoken(frames: str) -> dict[str, str]:
    """Return the texts of a stream, joined by kind of event and field."""
    said: dict[str, str] = {}

    def collect(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str) and name in TEXTS:
                    said[f"{path}.{name}"] = said.get(f"{path}.{name}", "") + inner
                elif isinstance(inner, dict | list):
                    collect(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for inner in value:
                collect(inner, path)

    for line in frames.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            collect(event, str(event.get("type", "")))
    return said


def lasting(value: Any) -> Any:
    """Return a body without the values that differ between requests."""
    if isinstance(value, dict):
        return {name: lasting(inner) for name, inner in value.items() if name not in PASSING}
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


def serve(scripted: Scripted, monkeypatch: pytest.MonkeyPatch, log: list[LogEntry], arrivals: list[int]) -> None:
    """Let each run that is started read this log, of which the layer delivers the entries of these indices."""

    async def start(**_: Any) -> RunReader:
        reader = RunReader("r", LossySource(log))
        for index in arrivals:
            reader.offer(log[index])
        return reader

    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", start)


@pytest.mark.parametrize("dialect", ROUTES)
@given(
    reasoning=pieces,
    text=pieces,
    arguments=st.none() | pieces,
    cuts=st.sets(st.integers(0, 25)),
    choose=st.randoms(use_true_random=False),
)
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_split_of_a_run_gives_the_same_answer(
    scripted: Scripted,
    api: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    reasoning: list[str],
    text: list[str],
    arguments: list[str] | None,
    cuts: set[int],
    choose: Any,
) -> None:
    route, body = ROUTES[dialect]
    payloads: list[Payload] = [ADMITTED]
    if dialect != "texts":
        payloads += [Delta(0, (5,), reasoning=piece) for piece in reasoning]
    payloads += [Delta(0, (6,), piece) for piece in text]
    end: ChoiceFinished = finished()
    if arguments is not None and dialect != "texts":
        calls = [
            ToolCallDelta(0, "call-1", "add"),
            *(ToolCallDelta(0, arguments=piece) for piece in ['{"s": 1', *map(str, range(len(arguments))), "}"]),
        ]
        payloads += [Delta(0, (7,), tool_calls=(call,)) for call in calls]
        end = finished(reason=FinishReason.TOOL_CALLS)
    events = numbered([*payloads, end, completed()])
    whole, cut = entries(events, set(range(len(events)))), entries(events, cuts)
    arrivals = [index for index in range(len(cut)) for _ in range(choose.choice([0, 1, 1, 2]))]
    last = len(cut) - 1
    if last not in arrivals:
        arrivals.append(last)  # a reader finds a lost last entry by a sweep, which does not run here

    answers = []
    for log, order in ((whole, list(range(len(whole)))), (cut, arrivals)):
        serve(scripted, monkeypatch, log, order)
        plain = await api.post(route, json=body)
        streamed = await api.post(route, json={**body, "stream": True})
        assert (plain.status_code, streamed.status_code) == (200, 200), (plain.text, streamed.text)
        answers.append((lasting(plain.json()), spoken(streamed.text)))
    assert answers[0] == answers[1]
