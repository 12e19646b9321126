"""Writes entries to the logs of their runs, then announces them to the web processes that read.

  write      one pipeline appends every entry to its run's log, id `<attempt>-<last position>`; an end runs finish.lua
  announce   one layer message per web process with the entries that were written, `n` counting by one
If no run ends, which is nearly always, one script (step.lua) does both in one round trip, over its own connection.

The log of a run refuses a worker that has lost the run, and nothing is announced.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

from redis.exceptions import RedisError, ResponseError

from chat.relay.state.runs import RUN_LIFE_MS, Runs, entry_position, script_text
from chat.relay.token_layer import TokenLayer
from chat.relay.valkey import AWAY, Answers, ValkeyLine
from chat.relay.worker.run_table import Entry, LiveRun, RunTable
from engine.api import Outcome

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 1.0
STEP = script_text("step")
TOO_OLD = "equal or smaller than the target stream top item"

Written = list[tuple[LiveRun, Entry]]


class LogWriter:
    """A writer of logs. `line` enables step.lua (see Publisher). `has_lost` is True while a log may lack entries."""

    def __init__(
        self,
        *,
        runs: Runs,
        layer: TokenLayer,
        worker_id: str,
        table: RunTable,
        line: ValkeyLine | None = None,
    ) -> None:
        self.has_lost = False
        self._runs = runs
        self._client: Answers = runs.client
        self._keys = runs.keys
        self._layer = layer
        self._worker_id = worker_id
        self._table = table
        self._line = line
        self._sent: dict[str, int] = defaultdict(int)

    async def write_and_announce(self, cut: Written) -> None:
        """Write and announce. Entries that Valkey does not take set `has_lost`; runs of another attempt are dropped."""
        try:
            if self._line is not None and all(run.completion is None for run, _ in cut):
                written = await self._write_step(self._line, cut)
            else:
                written = await self._write(cut)
        except AWAY as error:
            logger.warning("Valkey does not answer: %s; %d runs go on in memory", error, len(self._table.live))
            self.has_lost = True
            return
        if written:
            await self._announce(written)

    async def missing(self) -> Written:
        """Return the entries that the logs lack, by the last id of each log. Raises AWAY.

        A run of another attempt is dropped. One that Valkey has lost is aborted; only its end is worth writing.
        """
        runs = [*self._table.live.values(), *self._table.ended.values()]
        pipe = self._client.pipeline(transaction=False)
        for run in runs:
            pipe.hmget(self._keys.meta(run.run_id), "state", "attempt")
            pipe.xrevrange(self._keys.log(run.run_id), count=1)
        answers = await pipe.execute()
        missing: Written = []
        for run, (state, attempt), last in zip(runs, answers[0::2], answers[1::2], strict=True):
            missing += [(run, entry) for entry in self._missing_of(run, state, attempt, last)]
        return missing

    def _missing_of(self, run: LiveRun, state: bytes | None, attempt: bytes | None, last: list[Any]) -> list[Entry]:
        if attempt is None:
            if run.completion is None and not run.is_forgotten:
                run.is_forgotten = True
                self._table.abort(run.run_id, Outcome.FAILED)
            return [run.entries[-1]] if run.completion is not None else []
        if int(attempt) != run.claim.attempt:
            self._table.drop(run)
            return []
        if state == b"ended":
            return [] if run.ended_at is not None or run.completion is None else [run.entries[-1]]
        run.is_logged = bool(last)
        last_attempt, last_position = entry_position(last[0][0]) if last else (0, -1)
        if last_attempt < run.claim.attempt:
            last_position = -1
        return [entry for entry in run.entries if entry.position > last_position]

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def _write_step(self, line: ValkeyLine, cut: Written) -> Written:
        """Append and announce entries in one script. Return those that were written but not announced."""
        parts: list[Any] = ["EVAL", STEP, len(cut), *(self._keys.log(run.run_id) for run, _ in cut), RUN_LIFE_MS]
        for run, entry in cut:
            parts += (run.entry_name(entry), entry.payload, int(run.is_logged))
        for channel, message in self._messages(cut):
            parts += (channel, self._layer.serialize(message))
        try:
            answer = await line.call(*parts)
        except ResponseError as error:
            logger.error("logs refused: %s", error)
            self.has_lost = True
            return []
        for run, _ in cut:
            run.is_logged = True
        return [] if answer == b"OK" else self._written(cut, answer)

    async def _write(self, cut: Written) -> Written:
        """Append entries in one pipeline. Return those that were written."""
        pipe = self._client.pipeline(transaction=False)
        for run, entry in cut:
            if run.completion is not None and entry.position == run.completion.position:
                pipe.execute_command("EVAL", *self._runs.finish_command(run.completion))
            else:
                name = self._keys.log(run.run_id)
                pipe.xadd(name, {"e": entry.payload}, id=run.entry_name(entry), nomkstream=run.is_logged)
                if not run.is_logged:
                    pipe.pexpire(name, RUN_LIFE_MS)
                    run.is_logged = True
        answers = await pipe.execute(raise_on_error=False)
        return self._written(cut, [answer for answer in answers if not isinstance(answer, bool | int)])

    def _written(self, cut: Written, answers: list[Any]) -> Written:
        return [pair for pair, answer in zip(cut, answers, strict=True) if self._is_written(pair[0], answer)]

    def _is_written(self, run: LiveRun, answer: object) -> bool:
        if isinstance(answer, ResponseError):
            if TOO_OLD in str(answer):
                self._table.drop(run)
            else:
                logger.error("log of run %s refused: %s", run.run_id, answer)
                self.has_lost = True
            return False
        if answer is None:
            self.has_lost = True
            return False
        if answer == b"stale":
            self._table.drop(run)
            return False
        if run.completion is not None and answer in (b"ended", b"again"):
            self._table.settle(run, self._runs.clock())
        return True

    async def _announce(self, written: Written) -> None:
        for channel, message in self._messages(written):
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._layer.send(channel, message)
            except (TimeoutError, RedisError, OSError) as error:
                logger.warning("layer message lost: %s", error)

    def _messages(self, written: Written) -> list[tuple[str, dict[str, object]]]:
        """Return channel and message per web process. Readers detect a lost message by its number, or by a sweep."""
        deltas: dict[str, list[list[object]]] = defaultdict(list)
        for run, entry in written:
            for channel in run.claim.watchers.values():
                deltas[channel].append([run.run_id, run.claim.attempt, entry.position, entry.payload])
        messages: list[tuple[str, dict[str, object]]] = []
        for channel, items in deltas.items():
            number = self._sent[channel] = self._sent[channel] + 1
            messages.append((channel, {"type": "lc.step", "worker": self._worker_id, "n": number, "deltas": items}))
        return messages
