"""The state of runs in Valkey: admission, claim, end, stop, leave, takeover.

Each operation is one Lua script, so that it is atomic, and raises redis.RedisError or OSError if Valkey is unavailable.
Web processes (admit, leave, stop), workers (claim, finish) and the reaper (take over) use them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.records import pack_record, pack_request, unpack_events, unpack_request
from chat.relay.state.task_message import first_task
from chat.relay.valkey import Answers
from engine.api import Event, GenerationRequest, Outcome


def script_text(name: str) -> str:
    """Read a Lua script. Scripts are sent whole (EVAL), as a restarted Valkey has lost the cached ones."""
    return Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")


BUCKET = script_text("bucket")
ADMIT, FINISH, LOOK = (BUCKET + script_text(name) for name in ("admit", "finish", "look"))
ATTACH, CLAIM, LEAVE, STOP, TAKEOVER = map(script_text, ("attach", "claim", "leave", "stop", "takeover"))

MAX_ATTEMPTS = 3
LEASE_MS = 5_000
"""Of a worker and of a web process."""
LIVE_LEASE_MS = 120_000
RUN_LIFE_MS = 24 * 3600 * 1000
ENDED_LIFE_MS = 10 * 60 * 1000
READ_ENTRIES = 512
MAX_UNREAD_WITH_TEXTS = 256
"""Records that wait for the usage writer; while there are more, texts are left out."""


class NotNow(Exception):
    """The worker cannot claim a queued run at present. Its task must return to the queue, or it would be lost."""


@dataclass(frozen=True, slots=True)
class DetachPolicy:
    """The policy for a run that has lost its readers."""

    detach_grace_s: float = 0.0
    """How long the run goes on without a reader."""
    log_ttl_s: float = 0.0
    """How long its log stays after its end, if longer than ENDED_LIFE_MS."""
    public_id: str = ""
    """The id by which its project may attach to it again. Admission refuses one that belongs to another run."""
    resume_context: bytes = b""
    """JSON of the code that started the run, for the code that attaches to it."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request as admission sees it. A limit of 0 means no limit."""

    request: GenerationRequest
    caller: str
    about: Mapping[str, Any]
    """Fields of the terminal record that are known before the run."""
    requests_per_minute: int
    tokens_per_minute: int
    reserved_tokens: int
    max_live: int
    max_waiting: int
    has_task: bool = True
    """False creates the run without a task, so that no worker takes it."""
    project_id: int = 0
    detach: DetachPolicy = DetachPolicy()


class Decision(StrEnum):
    """The outcome of admission. The values are the words that admit.lua returns."""

    GO = "go"
    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"
    IN_USE = "in_use"
    """The public id belongs to another run."""
    FULL = "full"
    """The queue of the model is full, and the tenant has its share of it."""
    MEMORY = "memory"
    """Valkey's memory is nearly full."""
    UNAVAILABLE = "unavailable"
    """No worker of the model is ready."""
    LOOK = "look"
    """Nothing was decided: `Runs.look` only reads the levels of the buckets."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The decision of admission, with the levels of the caller's buckets after it."""

    decision: Decision
    wait_s: float
    requests_left: int
    requests_reset_s: float
    tokens_left: int
    tokens_reset_s: float
    worker_state: str = ""
    """Of the model's best worker, if GO or UNAVAILABLE."""
    worker_progress: float = 0.0


@dataclass(slots=True)
class Claim:
    """A run that a worker has claimed."""

    run_id: str
    attempt: int
    request: GenerationRequest
    caller: str
    about: dict[str, Any]
    tokens_per_minute: int
    stop: str
    """The outcome with which the run was stopped before the claim, or ''."""
    watchers: dict[str, str] = field(default_factory=dict)
    """Channel by web process that reads the run."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run that Valkey knows, for code that did not start it."""

    state: str
    """queued, running or ended"""
    about: dict[str, Any]
    detach_grace_s: float

    @property
    def has_ended(self) -> bool:
        return self.state == "ended"


@dataclass(frozen=True, slots=True)
class RunCompletion:
    """What the end of a run writes to Valkey."""

    run_id: str
    attempt: int
    caller: str
    slug: str
    tokens_per_minute: int
    position: int = 0
    payload: bytes = b""
    """The last packed events; empty if the run has no reader."""
    record: Mapping[str, Any] | None = None
    """The terminal record; None if the caller writes one itself."""
    worker_id: str = ""
    texts: bytes = b""
    """What was asked and answered (kept_texts.py); empty where it is not kept."""

    @property
    def used_tokens(self) -> int:
        return self.record["prompt_tokens"] + self.record["completion_tokens"] if self.record else 0


class Runs:
    """The operations on runs, over one client. `clock` returns unix seconds."""

    def __init__(self, client: Redis, keys: Keys, clock: Callable[[], float]) -> None:
        self.client: Answers = client
        self.keys = keys
        self.clock = clock

    async def admit(self, admission: AdmissionRequest, *, web_id: str, channel: str) -> AdmissionResult:
        """Check and charge all limits, create the run and queue its task, in one script. A refusal writes nothing."""
        keys, request, caller = self.keys, admission.request, admission.caller
        slug = model_slug(request.model)
        detach = admission.detach
        public = keys.public(admission.project_id, detach.public_id) if detach.public_id else ""
        meta = {
            "slug": slug,
            "caller": caller,
            "reserved": admission.reserved_tokens,
            "tokens_per_minute": admission.tokens_per_minute,
            "linger_ms": int(detach.detach_grace_s * 1000),
            "deadline_ms": int((request.deadline_at or 0) * 1000),
            "log_life_ms": int(detach.log_ttl_s * 1000),
            "public": public,
            "tenant_live": keys.tenant_live(slug, request.tenant),
            "about": json.dumps(dict(admission.about), separators=(",", ":")),
            f"web:{web_id}": channel,
        }
        names = (
            *(keys.meta(request.run_id), keys.request(request.run_id)),
            *(keys.admit_requests(caller), keys.admit_tokens(caller), keys.admit_live(caller)),
            *(keys.model_workers(slug), keys.model_live(slug), keys.queued, keys.web_runs(web_id), keys.tasks(slug)),
            *(keys.resume_context(request.run_id), keys.tenant_live(slug, request.tenant), keys.model_tenants(slug)),
            *(keys.demand(slug), *((public,) if public else ())),
        )
        answer = await self._eval(
            ADMIT,
            names,
            *(self._now_ms(), request.run_id, pack_request(request) if admission.has_task else b""),
            *(admission.requests_per_minute, admission.tokens_per_minute, admission.reserved_tokens),
            *(admission.max_live, admission.max_waiting, LIVE_LEASE_MS, keys.worker_prefix, RUN_LIFE_MS),
            first_task(request.run_id, slug) if admission.has_task else b"",
            *(detach.resume_context, request.tenant),
            *(item for pair in meta.items() for item in pair),
        )
        word, wait, requests_left, requests_reset, tokens_left, tokens_reset, *worker = answer
        state, progress = [item.decode() for item in worker] or ("", "0")
        return AdmissionResult(
            *(Decision(word.decode()), wait / 1000),
            *(requests_left, requests_reset / 1000, tokens_left, tokens_reset / 1000),
            *(state, float(progress)),
        )

    async def look(self, caller: str, *, requests_per_minute: int, tokens_per_minute: int) -> AdmissionResult:
        """Read what is left of a caller's limits, without a charge."""
        names = (self.keys.admit_requests(caller), self.keys.admit_tokens(caller))
        answer = await self._eval(LOOK, names, self._now_ms(), requests_per_minute, tokens_per_minute)
        requests_left, requests_reset, tokens_left, tokens_reset = answer
        return AdmissionResult(
            Decision.LOOK, 0.0, requests_left, requests_reset / 1000, tokens_left, tokens_reset / 1000
        )

    async def claim(self, run_id: str, attempt: int, worker_id: str) -> Claim | None:
        """Claim a queued run for this worker, or one that it holds; None if it is taken or gone.

        Raises NotNow if the worker's lease lapsed.
        """
        keys = self.keys
        run = (keys.meta(run_id), keys.request(run_id), keys.queued)
        worker = (keys.worker_runs(worker_id), keys.worker(worker_id))
        answer = await self._eval(CLAIM, (*run, *worker), run_id, attempt, worker_id)
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

    def finish_command(self, completion: RunCompletion) -> list[Any]:
        """Return the arguments of the EVAL that ends a run. Its reply is b"ended", b"again" or b"stale"."""
        keys, run_id, caller = self.keys, completion.run_id, completion.caller
        names = (
            *(keys.meta(run_id), keys.log(run_id), keys.request(run_id), keys.usage),
            *(keys.admit_live(caller), keys.model_live(completion.slug), keys.admit_tokens(caller)),
            *(keys.queued, keys.worker_runs(completion.worker_id), keys.unread, keys.resume_context(run_id)),
        )
        return [
            *(FINISH, len(names), *names),
            *(run_id, completion.attempt, entry_id(completion.attempt, completion.position), completion.payload),
            b"" if completion.record is None else pack_record(completion.record),
            *(completion.used_tokens, completion.tokens_per_minute, ENDED_LIFE_MS, self._now_ms()),
            *(completion.texts, MAX_UNREAD_WITH_TEXTS),
        ]

    async def finish(self, completion: RunCompletion) -> str:
        """End a run outside a pipeline. Return the reply of finish.lua."""
        return (await self.client.eval(*self.finish_command(completion))).decode()

    async def attach(self, run_id: str, *, web_id: str, channel: str) -> RunInfo | None:
        """Add a web process to the readers of a run; None if the run no longer exists."""
        names = (self.keys.meta(run_id), self.keys.web_runs(web_id), self.keys.unread)
        return _run_info(await self._eval(ATTACH, names, run_id, f"web:{web_id}", channel))

    async def find(self, run_id: str) -> RunInfo | None:
        """Return the state of a run; None if it no longer exists."""
        fields = await self.client.hmget(self.keys.meta(run_id), "state", "about", "linger_ms")
        return _run_info(fields) if fields[0] is not None else None

    async def find_public(self, project_id: int, public_id: str) -> tuple[str, bytes] | None:
        """Return the run id and the resume context of the run that a project knows by `public_id`, or None."""
        run_id = await self.client.get(self.keys.public(project_id, public_id))
        if run_id is None:
            return None
        context = await self.client.get(self.keys.resume_context(run_id.decode()))
        return None if context is None else (run_id.decode(), context)

    async def stop(self, run_id: str, outcome: str) -> str | None:
        """Set the stop flag. Return the id of the worker to notify ('' while queued); None if the run has ended."""
        answer = await self._eval(STOP, (self.keys.meta(run_id), self.keys.unread), run_id, outcome)
        return answer[1].decode() if answer[0] == b"stop" else None

    async def leave(self, run_id: str, web_id: str, client_outcome: Outcome | None = None) -> str | None:
        """Remove a web process from the readers. Return the id of the worker to notify if the run must stop, else None.

        `client_outcome`: how the web process itself ended the client's answer; it goes into the run's record.
        """
        names = (self.keys.meta(run_id), self.keys.web_runs(web_id), self.keys.unread, self.keys.usage)
        answer = await self._eval(LEAVE, names, run_id, f"web:{web_id}", self._now_ms(), client_outcome or "")
        return answer[1].decode() if answer[0] == b"stop" else None

    async def take_over(self, run_id: str, worker_id: str) -> tuple[int, str] | None:
        """Queue a run of a lapsed worker again. Return (next attempt, model slug), or None if the run is over."""
        keys = self.keys
        names = (keys.meta(run_id), keys.log(run_id), keys.worker(worker_id), keys.worker_runs(worker_id), keys.queued)
        answer = await self._eval(TAKEOVER, names, run_id, worker_id, self._now_ms())
        return (int(answer[1]), answer[2].decode()) if answer[0] == b"queued" else None

    async def read_log(
        self, run_id: str, *, attempt: int = 0, position: int = 0, limit: int = READ_ENTRIES
    ) -> list[LogEntry]:
        """Return the entries that cover `position` or later ones, oldest first, at most `limit`."""
        return log_entries(await self.client.xrange(self.keys.log(run_id), min=f"{attempt}-{position}", count=limit))

    async def read_whole_log(self, run_id: str) -> list[LogEntry]:
        """Return every entry of the log, oldest first. Reads a page at a time."""
        log = page = await self.read_log(run_id)
        while len(page) == READ_ENTRIES:
            page = await self.read_log(run_id, attempt=page[-1].attempt, position=page[-1].position + 1)
            log = log + page
        return log

    async def _eval(self, script: str, names: tuple[str, ...], *arguments: Any) -> Any:
        return await self.client.eval(script, len(names), *names, *arguments)

    def _now_ms(self) -> int:
        return int(self.clock() * 1000)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a log. A payload of None marks the begin of an attempt and covers one position."""

    attempt: int
    position: int
    payload: bytes | None

    def events(self) -> list[Event]:
        return [] if self.payload is None else unpack_events(self.payload)


def entry_id(attempt: int, position: int) -> str:
    return f"{attempt}-{position}"


def entry_position(raw: bytes) -> tuple[int, int]:
    """Return (attempt, last position) of an entry id."""
    attempt, _, position = raw.partition(b"-")
    return int(attempt), int(position)


def log_entries(raw: list[tuple[bytes, dict[bytes, bytes]]]) -> list[LogEntry]:
    return [LogEntry(*entry_position(name), fields.get(b"e")) for name, fields in raw]


def _run_info(fields: list[bytes]) -> RunInfo | None:
    if len(fields) < 3:
        return None
    state, about, detach_grace_ms = fields
    return RunInfo(state.decode(), json.loads(about), int(detach_grace_ms) / 1000)


def watchers_of(meta: Mapping[str, bytes]) -> dict[str, str]:
    """Return the channel of each web process that reads a run, from the fields of its meta."""
    return {name[4:]: channel.decode() for name, channel in meta.items() if name.startswith("web:")}
