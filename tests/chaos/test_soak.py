"""Many clients for LIGHTCONE_SOAK_S seconds (20; before a release: 120): well behaved, impatient and wrong ones.

The cache is small, so that requests wait for blocks. At the end nothing runs, every block is free, each request has one
row in the log with the outcome that its client saw, and no process has kept memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.chaos.inspection import WORDS, engine_stats, pid_of, request_log, resident_bytes
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]

SOAK_S = float(os.environ.get("LIGHTCONE_SOAK_S", "20"))
WARM_UP_S = min(SOAK_S / 2, 30.0)
NUM_CLIENTS = 32
CACHE_BYTES = 96 * 2**20
MIB = 2**20
MAX_GROWTH = {"web": 24 * MIB, "worker": 24 * MIB, "core": 96 * MIB, "maintenance": 16 * MIB}
"""Growth that is no leak: caches that fill, and arenas for a larger crowd. The core's buffers are the largest."""
VOCABULARY = (
    "amber beacon canyon desert ember forest garden harbor island jungle kettle lantern meadow nectar orchid prairie"
).split()

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"temperature": "hot"}, "temperature"),
    ({"max_tokens": 10_000_000}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"model": "no-such-model"}, "model"),
    ({"n": 0}, "n"),
)


@dataclass
class Seen:
    """The record of a request by its client.

    `outcomes`: permitted outcomes in the log; `tokens`: the usage of a finished answer.
    """

    request_id: str
    kind: str
    outcomes: set[str]
    must_be_logged: bool = True
    tokens: tuple[int, int] | None = None


@dataclass
class Crowd:
    """Clients of one server. `seen` has every request of every visit."""

    served: ServedLightcone
    seen: list[Seen] = field(default_factory=list)

    async def visit(self, name: str, until: float) -> None:
        """Run all clients at once, each with its own fixed sequence of random requests until `until` (monotonic)."""
        async with asyncio.TaskGroup() as group:
            for index in range(NUM_CLIENTS):
                group.create_task(self._client(f"{name}-{index}", until))

    async def _client(self, name: str, until: float) -> None:
        draw = random.Random(name)
        acts = [self._whole, self._stream, self._leave_stream, self._leave_whole, self._wrong]
        for number in itertools.count():
            if time.monotonic() >= until:
                break
            act = draw.choices(acts, (3, 4, 3, 1, 1))[0]
            await act(draw, f"{name}-{number}")

    @asynccontextmanager
    async def _post(self, request_id: str, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """A connection of its own for each request: leaving is closing it."""
        headers = {"Authorization": f"Bearer {self.served.api_key}", "X-Request-Id": request_id}
        async with (
            httpx.AsyncClient(timeout=120, trust_env=False) as client,
            client.stream("POST", f"{self.served.api_url}/chat/completions", json=body, headers=headers) as response,
        ):
            yield response

    async def _whole(self, draw: random.Random, request_id: str) -> None:
        async with self._post(request_id, self._body(draw)) as response:
            answer = json.loads(await response.aread())
        assert response.status_code == 200, answer
        assert all(choice["finish_reason"] in ("stop", "length") for choice in answer["choices"])
        self._note(request_id, "whole", {"finished"}, tokens=_tokens(answer["usage"]))

    async def _stream(self, draw: random.Random, request_id: str) -> None:
        body = self._body(draw) | {"stream": True, "stream_options": {"include_usage": True}}
        async with self._post(request_id, body) as response:
            assert response.status_code == 200, await response.aread()
            frames = [line async for line in response.aiter_lines() if line.startswith("data: ")]
        assert frames[-1] == "data: [DONE]"
        chunks = [json.loads(frame[6:]) for frame in frames[:-1]]
        ends = Counter(choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"])
        assert ends == dict.fromkeys(range(body["n"]), 1), chunks
        self._note(request_id, "stream", {"finished"}, tokens=_tokens(chunks[-1]["usage"]))

    async def _leave_stream(self, draw: random.Random, request_id: str) -> None:
        """Leave after some lines, anywhere between the first and far behind the last."""
        num_lines = draw.randrange(1, 60)
        async with self._post(request_id, self._body(draw) | {"stream": True}) as response:
            assert response.status_code == 200, await response.aread()
            async for _ in response.aiter_lines():
                num_lines -= 1
                if not num_lines:
                    break
        self._note(request_id, "left stream", {"disconnected", "finished"})

    async def _leave_whole(self, draw: random.Random, request_id: str) -> None:
        """Leave at a random moment; perhaps before the server has read the request, which is then not logged."""
        try:
            async with asyncio.timeout(draw.uniform(0.01, 2.0)):
                async with self._post(request_id, self._body(draw)) as response:
                    await response.aread()
        except TimeoutError:
            self._note(request_id, "left whole", {"disconnected", "finished"}, must_be_logged=False)
        else:
            self._note(request_id, "left whole", {"finished"})

    async def _wrong(self, draw: random.Random, request_id: str) -> None:
        change, param = draw.choice(WRONG)
        async with self._post(request_id, self._body(draw) | {"stream": draw.random() < 0.5} | change) as response:
            error = json.loads(await response.aread())["error"]
        assert (response.status_code in (400, 404), error["param"]) == (True, param), error
        self._note(request_id, "wrong", {"rejected"})

    def _body(self, draw: random.Random) -> dict[str, Any]:
        words = draw.choices(VOCABULARY, k=draw.choice([1, 8, 40, 120, 300]))
        body: dict[str, Any] = {
            "model": self.served.model,
            "messages": [{"role": "user", "content": " ".join(words)}],
            "max_tokens": draw.randrange(1, 48),
            "temperature": 0,
            "n": 1,
        }
        if draw.random() < 0.7:
            body |= {"temperature": draw.choice([0.7, 1.3]), "n": draw.choice([1, 1, 1, 2, 3])}
        if draw.random() < 0.3:
            body |= {"top_p": 0.9, "frequency_penalty": 0.5, "seed": draw.randrange(1000)}
        if draw.random() < 0.2:
            body |= {"stop": [draw.choice([".", "the", "\n"])]}
        if draw.random() < 0.1:
            body |= {"logprobs": True, "top_logprobs": 3}
        return body

    def _note(self, request_id: str, kind: str, outcomes: set[str], **more: Any) -> None:
        self.seen.append(Seen(request_id, kind, outcomes, **more))


def _tokens(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    served = ServedLightcone(tmp_path_factory.mktemp("soak"), {"LIGHTCONE_KV_CACHE_BYTES": str(CACHE_BYTES)})
    with served.running():
        yield served
    assert served.processes_left() == []


def test_a_crowd_leaves_nothing_running_nothing_unlogged_and_no_memory_behind(served: ServedLightcone) -> None:
    pids = {name: pid_of(served, name) for name in WORDS}
    started = time.monotonic()
    crowd = Crowd(served)
    asyncio.run(crowd.visit("early", started + WARM_UP_S))
    before = {name: resident_bytes(pid) for name, pid in pids.items()}
    asyncio.run(crowd.visit("late", started + SOAK_S))

    served.wait_for(lambda: _is_idle(engine_stats(served)), timeout_s=30, what="the engine to be idle")
    stats = engine_stats(served)
    core = stats["core"]
    assert core["integrity"] == ""
    assert core["num_free_blocks"] == core["num_blocks"]
    assert (stats["state"], stats["num_restarts"]) == ("ready", 0)
    assert {name: pid_of(served, name) for name in WORDS} == pids, "a process was started anew"

    _check_log(served, crowd.seen)
    after = {name: resident_bytes(pid) for name, pid in pids.items()}
    growth = {name: after[name] - before[name] for name in pids}
    kinds = Counter(seen.kind for seen in crowd.seen)
    print(  # noqa: T201  the figures are what it is run for
        f"\n{dict(kinds)} {core}\n"
        + "  ".join(f"{name} {before[name] / MIB:.0f}{growth[name] / MIB:+.1f} MiB" for name in pids)
    )  # noqa: T201
    assert {name: grown for name, grown in growth.items() if grown > MAX_GROWTH[name]} == {}


def _is_idle(stats: dict[str, Any]) -> bool:
    core = stats["core"]
    return core is not None and not (
        stats["num_live"] or stats["num_runs"] or core["num_running"] or core["num_waiting"]
    )


def _check_log(served: ServedLightcone, seen: list[Seen]) -> None:
    """Check that each request has one row with the outcome that its client saw."""
    expected = {item.request_id: item for item in seen}
    assert len(expected) == len(seen)
    required = {item.request_id for item in seen if item.must_be_logged}
    served.wait_for(
        lambda: required <= {row["client_request_id"] for row in request_log(served)},
        timeout_s=15,
        what="a row for each request",
    )
    rows = request_log(served)
    counts = Counter(row["client_request_id"] for row in rows)
    assert set(counts) <= set(expected)
    assert {name: count for name, count in counts.items() if count > 1} == {}
    for row in rows:
        item = expected[row["client_request_id"]]
        assert row["outcome"] in item.outcomes, (item, row)
        if item.tokens is not None:
            assert (row["prompt_tokens"], row["completion_tokens"]) == item.tokens, (item, row)
