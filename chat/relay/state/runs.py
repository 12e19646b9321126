"""The state of runs in Valkey: admission, claim, end, stop, leave, takeover.

Each operation is one Lua script, so that it is atomic, and raises redis.RedisError or OSError if Valkey is unavailable.
Web processes (admit, leave, stop), workers (claim, finish) and the reaper (take over) use them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.meters import SLOTS, BudgetMeter, Cost, Scope, budgets_plain, scopes_plain
from chat.relay.state.records import pack_record, pack_request, unpack_events, unpack_request
from chat.relay.state.task_message import first_task
from chat.relay.valkey import Answers
from engine.api import Event, GenerationRequest, Outcome


def script_text(name: str) -> str:
    """Read a Lua script."""
    return Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")


METERS = script_text("meters")
ADMIT, FINISH = (METERS + script_text("budgets") + script_text(name) for name in ("admit", "finish"))
LOOK = METERS + script_text("look")
ATTACH, CLAIM, LEAVE, STOP, TAKEOVER = map(script_text, ("attach", "claim", "leave", "stop", "takeover"))
DIGESTS = {
    script: hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    for script in (ADMIT, FINISH, LOOK, ATTACH, CLAIM, LEAVE, STOP, TAKEOVER)
}
"""By which Valkey knows scripts that it has run."""

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
    """A request as admission sees it."""

    request: GenerationRequest
    about: Mapping[str, Any]
    """Fields of the terminal record that are known before the run."""
    scopes: tuple[Scope, ...]
    """What it counts to."""
    cost: Cost
    max_waiting: int
    budgets: tuple[BudgetMeter, ...] = ()
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
    SHARE = "share"
    """A scope has its share of the model's places."""
    QUOTA = "quota"
    """A hard budget is spent, or cannot cover the request."""
    BEYOND = "beyond"
    """The request may cost more than the whole of a hard budget."""
    HELD = "held"
    """What is left of a hard budget is reserved by running requests."""
    UNKNOWN = "unknown"
    """Valkey does not know what is spent of a hard budget: it must be filled from SQL."""
    IN_USE = "in_use"
    """The public id belongs to another run."""
    FULL = "full"
    """The queue of the model is full, and the tenant has its share of it."""
    MEMORY = "memory"
    """Valkey's memory is nearly full."""
    UNAVAILABLE = "unavailable"
    """No worker of the model is ready."""
    LOOK = "look"
    """Nothing was decided: `Runs.look` only reads."""


@dataclass(frozen=True, slots=True)
class Level:
    """What is left of the tightest rate of a kind. A limit of 0: there is none."""

    limit: int = 0
    left: int = 0
    reset_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The decision of admission, with what is left of the tightest rates after it."""

    decision: Decision
    wait_s: float
    requests: Level = Level()
    tokens: Level = Level()
    worker_state: str = ""
    """Of the model's best worker, if GO or UNAVAILABLE."""
    worker_progress: float = 0.0
    cap: int = -1
    """The tokens that hard budgets leave to each answer; -1: as many as it wants."""
    scope: int = 0
    """The number of the limited scope that refuses, from 1; of a budget, its number."""
    rate: int = 0
    """The number of the scope's rate that refuses, from 1."""


def _levels(figures: list[int]) -> tuple[Level, Level]:
    requests, left, reset_ms, tokens, tokens_left, tokens_reset_ms = figures
    return Level(requests, left, reset_ms / 1000), Level(tokens, tokens_left, tokens_reset_ms / 1000)


def _rate_number(scopes: tuple[Scope, ...], scope: int, slot: int) -> int:
    """Return the number, from 1, of the rate of a limited scope that has a slot. All are numbers from 1."""
    limited = [one for one in scopes if one.is_limited]
    return 1 + [SLOTS[slot - 1] == (rate.measure, rate.period) for rate in limited[scope - 1].rates].index(True)


@dataclass(slots=True)
class Claim:
    """A run that a worker has claimed."""

    run_id: str
    attempt: int
    request: GenerationRequest
    about: dict[str, Any]
    lives: tuple[str, ...]
    """The sets in which its lease is renewed."""
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
    slug: str
    position: int = 0
    payload: bytes = b""
    """The last packed events; empty if the run has no reader."""
    record: Mapping[str, Any] | None = None
    """The terminal record; None if the caller writes one itself."""
    worker_id: str = ""
    texts: bytes = b""
    """What was asked and answered (kept_texts.py); empty where it is not kept."""

    @property
    def used_tokens(self) -> tuple[int, int, int, int]:
        """Return the tokens of the prompt, the cached ones of them, those of the completion and of its reasoning."""
        record = self.record or {}
        prompt, cached = record.get("prompt_tokens", 0), record.get("cached_tokens", 0)
        completion, reasoning = record.get("completion_tokens", 0), record.get("reasoning_tokens", 0)
        return prompt, min(cached, prompt), completion, min(reasoning, completion)


class Runs:
    """The operations on runs, over one client. `clock` returns unix seconds."""

    def __init__(self, client: Redis, keys: Keys, clock: Callable[[], float]) -> None:
        self.client: Answers = client
        self.keys = keys
        self.clock = clock

    async def admit(self, admission: AdmissionRequest, *, web_id: str, channel: str) -> AdmissionResult:
        """Check and charge all limits, create the run and queue its task, in one script. A refusal writes nothing."""
        keys, request = self.keys, admission.request
        slug = model_slug(request.model)
        detach, cost = admission.detach, admission.cost
        scopes = scopes_plain(admission.scopes, keys, slug)
        budgets, prices = budgets_plain(admission.budgets, keys)
        meta = {
            "slug": slug,
            "linger_ms": int(detach.detach_grace_s * 1000),
            "deadline_ms": int((request.deadline_at or 0) * 1000),
            "log_life_ms": int(detach.log_ttl_s * 1000),
            "about": json.dumps(dict(admission.about), separators=(",", ":")),
            f"web:{web_id}": channel,
        }
        names = (
            *(keys.meta(request.run_id), keys.request(request.run_id)),
            *(keys.model_workers(slug), keys.model_live(slug), keys.queued, keys.web_runs(web_id), keys.tasks(slug)),
            *(keys.resume_context(request.run_id), keys.model_tenants(slug), keys.demand(slug)),
            *(keys.public(admission.project_id, detach.public_id) if detach.public_id else "", keys.memory),
            *(*scopes.meters, keys.tenant_live(slug, request.tenant), *scopes.lives, *budgets),
        )
        answer = await self._eval(
            ADMIT,
            names,
            *(self._now_ms(), request.run_id, pack_request(request) if admission.has_task else b""),
            *(scopes.limits, cost.packed, prices, cost.packed_size),
            *(admission.max_waiting, LIVE_LEASE_MS, keys.worker_prefix, RUN_LIFE_MS),
            first_task(request.run_id, slug) if admission.has_task else b"",
            *(detach.resume_context, request.tenant),
            *(item for pair in meta.items() if pair[1] for item in pair),
        )
        word, wait, *levels, state, progress, cap, scope, slot = answer
        requests, tokens = _levels(levels)
        worker = (state.decode(), float(progress))
        rate = _rate_number(admission.scopes, scope, slot) if slot else 0
        return AdmissionResult(Decision(word.decode()), wait / 1000, requests, tokens, *worker, cap, scope, rate)

    async def look(self, scopes: tuple[Scope, ...]) -> AdmissionResult:
        """Read what is left of the limits of scopes, without a charge."""
        plain = scopes_plain(scopes, self.keys, "")
        levels = await self._eval(LOOK, plain.meters, self._now_ms(), plain.limits)
        return AdmissionResult(Decision.LOOK, 0.0, *_levels(levels))

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
            _capped(unpack_request(answer[1]), int(meta.get("cap", -1))),
            json.loads(meta["about"]),
            tuple(meta.get("lives", b"").decode().split()),
            meta.get("stop", b"").decode(),
            watchers_of(meta),
        )

    def finish_command(self, completion: RunCompletion) -> list[Any]:
        """Return the arguments of the EVAL that ends a run. Its reply is b"ended", b"again" or b"stale".

        The script is sent whole, as a pipeline cannot repeat one command that a restarted Valkey does not know.
        """
        keys, run_id = self.keys, completion.run_id
        names = (
            *(keys.meta(run_id), keys.log(run_id), keys.request(run_id), keys.usage, keys.model_live(completion.slug)),
            *(keys.queued, keys.worker_runs(completion.worker_id), keys.unread, keys.resume_context(run_id)),
        )
        return [
            *(FINISH, len(names), *names),
            *(run_id, completion.attempt, entry_id(completion.attempt, completion.position), completion.payload),
            b"" if completion.record is None else pack_record(completion.record),
            *(*completion.used_tokens, ENDED_LIFE_MS, self._now_ms()),
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
        try:
            return await self.client.evalsha(DIGESTS[script], len(names), *names, *arguments)
        except NoScriptError:
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


def _capped(request: GenerationRequest, cap: int) -> GenerationRequest:
    """Return the request with the cap on each answer that hard budgets have left it; -1: none."""
    stop = request.stop
    if cap < 0 or stop.max_tokens is not None:
        return request
    absent = cap if stop.absent_max_tokens is None else min(cap, stop.absent_max_tokens)
    return replace(request, stop=replace(stop, absent_max_tokens=absent))


def _run_info(fields: list[bytes]) -> RunInfo | None:
    if len(fields) < 3:
        return None
    state, about, detach_grace_ms = fields
    return RunInfo(state.decode(), json.loads(about), int(detach_grace_ms or 0) / 1000)


def watchers_of(meta: Mapping[str, bytes]) -> dict[str, str]:
    """Return the channel of each web process that reads a run, from the fields of its meta."""
    return {name[4:]: channel.decode() for name, channel in meta.items() if name.startswith("web:")}
