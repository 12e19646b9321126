"""The state of runs in Valkey: admission, claim, end, stop, leave, takeover.

Each act is one Lua script, so that it happens once or not at all.

Used by web processes (admit, leave, stop), workers (claim, finish) and the reaper (take over). Refuses to know how events
travel (publisher, dispatcher) and how tasks are sent. Raises redis.RedisError where Valkey is away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from chat.relay.state.codec import pack_record, pack_request, unpack_events, unpack_request
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.task_message import task_message
from chat.relay.valkey.store import Answers, script_text
from engine.api import Event, GenerationRequest, Outcome

ATTACH, BUCKET, CLAIM, LEAVE, STOP, TAKEOVER = (
    script_text(Path(__file__).parent / f"{name}.lua")
    for name in ("attach", "bucket", "claim", "leave", "stop", "takeover")
)
ADMIT = BUCKET + script_text(Path(__file__).parent / "admit.lua")
FINISH, LOOK = (BUCKET + script_text(Path(__file__).parent / f"{name}.lua") for name in ("finish", "look"))

MAX_ATTEMPTS = 3
LEASE_MS = 5_000
"""Of a worker or a web process."""
LIVE_LEASE_MS = 120_000
RUN_LIFE_MS = 24 * 3600 * 1000
ENDED_LIFE_MS = 10 * 60 * 1000
READ_ENTRIES = 512


class NotNow(Exception):
    """This worker cannot take a run that waits: its task has to go back to the queue, or it is gone."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What admission checks and keeps of one request. Limits of 0 are none.

    `about`: fields of the terminal record that are known now; `detach_grace_s`: how long the run goes on without a reader;
    `has_task`: workers
    are to take it. `public_id`: by which its project finds the run, refused while it stands for another one; `kept`: what is kept for
    whoever does (JSON); `log_ttl_s`: how long its log stays after its end, where longer than usual.
    """

    request: GenerationRequest
    caller: str
    about: Mapping[str, Any]
    requests_per_minute: int
    tokens_per_minute: int
    reserved_tokens: int
    max_live: int
    max_waiting: int
    detach_grace_s: float = 0.0
    has_task: bool = True
    project_id: int = 0
    public_id: str = ""
    kept: bytes = b""
    log_ttl_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer of admission: `go`, the limit that said no (`requests`, `tokens`, `concurrency`), `in_use` (the public id), `full` (the queue
    of the model), `memory` (Valkey's) or `unavailable`.

    `look` is no answer: what is left of the limits, for who asks for nothing.
    """

    word: str
    wait_s: float
    requests_left: int
    requests_reset_s: float
    tokens_left: int
    tokens_reset_s: float
    worker_state: str = ""
    worker_progress: float = 0.0


@dataclass(slots=True)
class Claim:
    """A run in a worker's hands. `watchers`: channel by web process; `stop`: outcome asked for before the claim, or ''."""

    run_id: str
    attempt: int
    request: GenerationRequest
    caller: str
    about: dict[str, Any]
    tokens_per_minute: int
    stop: str
    watchers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """A run that is there, for who did not start it. `state`: queued, running or ended."""

    state: str
    about: dict[str, Any]
    detach_grace_s: float

    @property
    def has_ended(self) -> bool:
        return self.state == "ended"


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a run writes. `payload` is empty when there is nobody to tell; `record` None when another one is written."""

    run_id: str
    attempt: int
    position: int
    payload: bytes
    record: Mapping[str, Any] | None
    used_tokens: int
    caller: str
    slug: str
    worker_id: str
    tokens_per_minute: int


class Runs:
    """All acts on runs over one connection. `clock`: unix seconds."""

    def __init__(self, client: Redis, keys: Keys, clock: Callable[[], float]) -> None:
        self.client: Answers = client
        self.keys = keys
        self.clock = clock

    async def admit(self, admission: Admission, *, web_id: str, channel: str) -> Verdict:
        """Check every limit, charge them, create the run and queue its task, in one script; nothing is written on a refusal."""
        keys, request, caller = self.keys, admission.request, admission.caller
        slug = model_slug(request.model)
        public = keys.public(admission.project_id, admission.public_id) if admission.public_id else ""
        meta = {
            "slug": slug,
            "caller": caller,
            "reserved": admission.reserved_tokens,
            "tokens_per_minute": admission.tokens_per_minute,
            "linger_ms": int(admission.detach_grace_s * 1000),
            "deadline_ms": int((request.deadline_at or 0) * 1000),
            "log_life_ms": int(admission.log_ttl_s * 1000),
            "public": public,
            "tenant_live": keys.tenant_live(slug, request.tenant),
            "about": json.dumps(dict(admission.about), separators=(",", ":")),
            f"web:{web_id}": channel,
        }
        names = (
            *(keys.meta(request.run_id), keys.request(request.run_id)),
            *(keys.admit_requests(caller), keys.admit_tokens(caller), keys.admit_live(caller)),
            *(keys.model_workers(slug), keys.model_live(slug), keys.queued, keys.web_runs(web_id), keys.tasks(slug)),
            *(keys.kept(request.run_id), keys.tenant_live(slug, request.tenant), keys.model_tenants(slug)),
            *((public,) if public else ()),
        )
        answer = await self.client.eval(
            ADMIT,
            len(names),
            *names,
            *(self._now_ms(), request.run_id, pack_request(request) if admission.has_task else b""),
            *(admission.requests_per_minute, admission.tokens_per_minute, admission.reserved_tokens),
            *(admission.max_live, admission.max_waiting, LIVE_LEASE_MS, keys.worker_prefix, RUN_LIFE_MS),
            task_message(request.run_id, 1, slug) if admission.has_task else b"",
            *(admission.kept, request.tenant),
            *(item for pair in meta.items() for item in pair),
        )
        word, wait, requests_left, requests_reset, tokens_left, tokens_reset, *worker = answer
        state, progress = [item.decode() for item in worker] or ("", "0")
        return Verdict(
            *(word.decode(), wait / 1000, requests_left, requests_reset / 1000, tokens_left, tokens_reset / 1000),
            *(state, float(progress)),
        )

    async def look(self, caller: str, *, requests_per_minute: int, tokens_per_minute: int) -> Verdict:
        """What is left of a caller's limits; charges nothing."""
        names = (self.keys.admit_requests(caller), self.keys.admit_tokens(caller))
        answer = await self.client.eval(
            LOOK, len(names), *names, self._now_ms(), requests_per_minute, tokens_per_minute
        )
        requests_left, requests_reset, tokens_left, tokens_reset = answer
        return Verdict("look", 0.0, requests_left, requests_reset / 1000, tokens_left, tokens_reset / 1000)

    async def claim(self, run_id: str, attempt: int, worker_id: str) -> Claim | None:
        """Take a queued run for this worker; None when it is taken or gone. Raises NotNow where the worker's own lease has lapsed.

        Asked again, it gives a run that this worker has: whoever calls knows which it holds.
        """
        return self.claim_read(run_id, attempt, await self.client.eval(*self.claim_command(run_id, attempt, worker_id)))

    def claim_command(self, run_id: str, attempt: int, worker_id: str) -> list[Any]:
        """The claim as the arguments of an EVAL, for other connections."""
        keys = self.keys
        names = (
            keys.meta(run_id),
            keys.request(run_id),
            keys.queued,
            keys.worker_runs(worker_id),
            keys.worker(worker_id),
        )
        return [CLAIM, len(names), *names, run_id, attempt, worker_id]

    def claim_read(self, run_id: str, attempt: int, answer: list[Any]) -> Claim | None:
        """What the script of claims has answered; None where the run is not to be had. Raises NotNow."""
        if answer[0] == b"lapsed":
            raise NotNow
        if answer[0] != b"claimed" or answer[1] is None:
            return None
        meta = dict(zip((name.decode() for name in answer[2::2]), answer[3::2], strict=True))
        return Claim(
            run_id,
            attempt,
            unpack_request(answer[1]),
            meta["caller"].decode(),
            json.loads(meta["about"]),
            int(meta["tokens_per_minute"]),
            meta["stop"].decode(),
            watchers_of(meta),
        )

    def finish_command(self, ending: Ending) -> list[Any]:
        """The end of a run as the arguments of an EVAL, for a pipeline. It answers b"ended", b"again" or b"stale"."""
        keys, run_id = self.keys, ending.run_id
        names = (
            *(keys.meta(run_id), keys.log(run_id), keys.request(run_id), keys.usage),
            *(keys.admit_live(ending.caller), keys.model_live(ending.slug), keys.admit_tokens(ending.caller)),
            *(keys.queued, keys.worker_runs(ending.worker_id), keys.unread, keys.kept(run_id)),
        )
        return [
            *(FINISH, len(names), *names),
            *(run_id, ending.attempt, entry_id(ending.attempt, ending.position), ending.payload),
            b"" if ending.record is None else pack_record(ending.record),
            *(ending.used_tokens, ending.tokens_per_minute, ENDED_LIFE_MS, self._now_ms()),
        ]

    async def finish(self, ending: Ending) -> str:
        """End a run outside a pipeline; the answer of the script."""
        return (await self.client.eval(*self.finish_command(ending))).decode()

    async def attach(self, run_id: str, *, web_id: str, channel: str) -> Found | None:
        """A web process reads a run that another request started; None where there is none any more."""
        names = (self.keys.meta(run_id), self.keys.web_runs(web_id), self.keys.unread)
        return _found(await self.client.eval(ATTACH, len(names), *names, run_id, f"web:{web_id}", channel))

    async def find(self, run_id: str) -> Found | None:
        """What is known of a run; None where there is none any more."""
        fields = await self.client.hmget(self.keys.meta(run_id), "state", "about", "linger_ms")
        return _found(fields) if fields[0] is not None else None

    async def find_public(self, project_id: int, public_id: str) -> tuple[str, bytes] | None:
        """The id of the run that a project knows by `public_id`, and what was kept of it."""
        run_id = await self.client.get(self.keys.public(project_id, public_id))
        if run_id is None:
            return None
        kept = await self.client.get(self.keys.kept(run_id.decode()))
        return None if kept is None else (run_id.decode(), kept)

    async def stop(self, run_id: str, outcome: str) -> str | None:
        """Set the stop flag. The id of the worker to tell ('' while queued), None when the run is over."""
        answer = await self.client.eval(STOP, 2, self.keys.meta(run_id), self.keys.unread, run_id, outcome)
        return answer[1].decode() if answer[0] == b"stop" else None

    async def leave(self, run_id: str, web_id: str, told: Outcome | None = None) -> str | None:
        """A web process reads the run no more. The id of the worker to tell if the run has to stop, else None.

        `told`: how the web process has ended the answer of the client, which then has not left by itself; the run's record says so.
        """
        names = (self.keys.meta(run_id), self.keys.web_runs(web_id), self.keys.unread, self.keys.usage)
        told_word = told.value if told is not None else ""
        answer = await self.client.eval(LEAVE, len(names), *names, run_id, f"web:{web_id}", self._now_ms(), told_word)
        return answer[1].decode() if answer[0] == b"stop" else None

    async def take_over(self, run_id: str, worker_id: str) -> tuple[int, str] | None:
        """Re-queue a run of a lapsed worker: (next attempt, model slug); None when there is nothing to take."""
        keys = self.keys
        names = (keys.meta(run_id), keys.log(run_id), keys.worker(worker_id), keys.worker_runs(worker_id), keys.queued)
        answer = await self.client.eval(TAKEOVER, len(names), *names, run_id, worker_id, self._now_ms())
        return (int(answer[1]), answer[2].decode()) if answer[0] == b"queued" else None

    async def read_log(
        self, run_id: str, *, attempt: int = 0, position: int = 0, limit: int = READ_ENTRIES
    ) -> list[LogEntry]:
        """Entries that cover `position` or later ones, oldest first, at most `limit`."""
        return log_entries(await self.client.xrange(self.keys.log(run_id), min=f"{attempt}-{position}", count=limit))

    async def read_whole_log(self, run_id: str) -> list[LogEntry]:
        """Every entry of the log, oldest first, a page at a time."""
        log = page = await self.read_log(run_id)
        while len(page) == READ_ENTRIES:
            page = await self.read_log(run_id, attempt=page[-1].attempt, position=page[-1].position + 1)
            log = log + page
        return log

    def _now_ms(self) -> int:
        return int(self.clock() * 1000)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a log. `payload` None: the `begin` of an attempt, which covers one position, `position`."""

    attempt: int
    position: int
    payload: bytes | None

    def events(self) -> list[Event]:
        return [] if self.payload is None else unpack_events(self.payload)


def entry_id(attempt: int, position: int) -> str:
    return f"{attempt}-{position}"


def entry_position(raw: bytes) -> tuple[int, int]:
    """(attempt, last position) of an entry id."""
    attempt, _, position = raw.partition(b"-")
    return int(attempt), int(position)


def log_entries(raw: list[tuple[bytes, dict[bytes, bytes]]]) -> list[LogEntry]:
    return [LogEntry(*entry_position(name), fields.get(b"e")) for name, fields in raw]


def _found(fields: list[bytes]) -> Found | None:
    if len(fields) < 3:
        return None
    state, about, linger_ms = fields
    return Found(state.decode(), json.loads(about), int(linger_ms) / 1000)


def watchers_of(meta: Mapping[str, bytes]) -> dict[str, str]:
    """Channel by web process, from the fields of a run's meta."""
    return {name[4:]: channel.decode() for name, channel in meta.items() if name.startswith("web:")}
