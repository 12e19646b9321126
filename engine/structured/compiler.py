"""Compile constraints of requests into grammars for the core, in the worker: in killable processes, with a cache
bounded in bytes.

Equal constraints are compiled once. Nothing is kept on disk. `engine.engine` calls this from many threads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.api.constraint import Constraint, ConstraintKind
from engine.config import StructuredLimits
from engine.killable import KillableExceeded, KillablePool
from engine.messages import DefineGrammar
from engine.slow_work import SlowWork
from engine.structured.exchange import CHECK, CHECK_SCHEMAS, COMPILE, EBNF, PREPARE, XGRAMMAR
from engine.structured.refusal import refusal

NUM_PROCESSES = 3
DEFAULT_LIMITS = StructuredLimits()
GRAMMAR_BYTES = 128 << 10
"""The approximate memory of a built grammar in the core, beside its payload."""
MAX_REFUSALS = 256
SLOW_S, MAX_SLOW_S = 10.0, 3600.0
"""The time for which a constraint that took too long is refused unseen, at first and at most, as the machine may only
have been busy. Each further time doubles it.
"""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The refusal of a constraint that exceeded a bound.

    Until `until` (`time.monotonic`) it is repeated without compiling.
    """

    message: str
    until: float
    held_s: float


class ConstraintCompiler:
    """The compiler of one model's constraints."""

    def __init__(
        self,
        model_path: Path,
        limits: StructuredLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        work: SlowWork | None = None,
    ) -> None:
        """Create the compiler. `work` is the worker's slow work."""
        work = work or SlowWork()
        self._limits = limits
        self._clock = clock
        first_call = (PREPARE, str(model_path.absolute()), dataclasses.asdict(limits))
        self._pool = KillablePool(
            "engine.structured.child_task:run", NUM_PROCESSES, limits.compile_bytes, first_call, work=work
        )
        self._xgrammar_pool = KillablePool(
            "engine.structured.backends.xgrammar_child:run",
            1,
            limits.compile_bytes,
            (PREPARE, str(model_path.absolute())),
            work=work,
        )
        self._model = str(model_path.absolute()).encode()
        self._changed = threading.Lock()
        self._grammars: OrderedDict[str, DefineGrammar] = OrderedDict()
        self._refusals: OrderedDict[str, _Refusal] = OrderedDict()
        self._num_bytes = 0
        self._evicted: list[str] = []

    def warm(self) -> None:
        """Start a process before the first constraint."""
        self._pool.warm()

    def compile(self, constraint: Constraint, tenant: str = "") -> DefineGrammar:
        """Return the grammar of a constraint.

        Raises RequestError, EngineFailure if a process fails, and EngineUnavailable.
        """
        key = self._key(constraint)
        if (found := self._find(key, constraint.param)) is not None:
            return found
        fields = (*_shape(constraint), constraint.param)
        self._check_size(constraint)
        timeout_s = self._limits.compile_timeout_s
        try:
            backend, payload = self._pool.call(COMPILE, *fields, timeout_s=timeout_s, tenant=tenant)
            if backend == EBNF:
                backend = XGRAMMAR
                payload = self._xgrammar_pool.call(
                    COMPILE, payload.decode(), constraint.param, timeout_s=timeout_s, tenant=tenant
                )
        except KillableExceeded as error:
            message = self._exceeded(error)
            self._note_refusal(key, message, is_lasting=error.reason != "time")
            raise refusal(constraint.param, message) from error
        grammar = DefineGrammar(key, backend, payload)
        self._keep(grammar)
        return grammar

    def check_tool_schemas(self, schemas: list[tuple[str, str]], tenant: str = "") -> None:
        """Check (JSON text, param) of tools' parameters.

        Raises RequestError for the first that is no valid schema of an object.
        """
        total = sum(len(text) for text, _ in schemas)
        if total > self._limits.tool_bytes:
            raise refusal("tools", f"the tools must have at most {self._limits.tool_bytes} bytes together, got {total}")
        try:
            self._pool.call(CHECK_SCHEMAS, schemas, timeout_s=self._limits.compile_timeout_s, tenant=tenant)
        except KillableExceeded as error:
            raise refusal("tools", self._exceeded(error)) from error

    def check(self, constraint: Constraint, tenant: str = "") -> None:
        """Check the JSON of a constraint that will not be enforced.

        Raises RequestError if it is no schema or no structural tag.
        """
        if constraint.kind not in (ConstraintKind.JSON_SCHEMA, ConstraintKind.STRUCTURAL_TAG):
            return
        self._check_size(constraint)
        try:
            fields = (constraint.kind.value, constraint.source, constraint.param)
            self._pool.call(CHECK, *fields, timeout_s=self._limits.compile_timeout_s, tenant=tenant)
        except KillableExceeded as error:
            raise refusal(constraint.param, self._exceeded(error)) from error

    def take_evicted(self) -> list[str]:
        """Return the keys of grammars that the cache has dropped since the last call."""
        with self._changed:
            evicted, self._evicted = self._evicted, []
            return evicted

    def has(self, key: str) -> bool:
        """Return True if the cache still holds a grammar."""
        return key in self._grammars

    def close(self) -> None:
        """End the processes. Idempotent."""
        self._pool.close()
        self._xgrammar_pool.close()

    def _key(self, constraint: Constraint) -> str:
        """Return a key that is equal for equal grammars: a hash of all that shapes one, vocabulary included."""
        return hashlib.sha256(self._model + b"\0" + json.dumps(_shape(constraint)).encode()).hexdigest()

    def _find(self, key: str, param: str) -> DefineGrammar | None:
        with self._changed:
            known = self._refusals.get(key)
            if known is not None and self._clock() < known.until:
                raise refusal(param, known.message)
            if key in self._grammars:
                self._grammars.move_to_end(key)
            return self._grammars.get(key)

    def _keep(self, grammar: DefineGrammar) -> None:
        with self._changed:
            self._refusals.pop(grammar.key, None)
            if grammar.key in self._grammars:
                return
            self._grammars[grammar.key] = grammar
            self._num_bytes += _size(grammar)
            while self._num_bytes > self._limits.cache_bytes and len(self._grammars) > 1:
                key, dropped = self._grammars.popitem(last=False)
                self._num_bytes -= _size(dropped)
                self._evicted.append(key)

    def _note_refusal(self, key: str, message: str, *, is_lasting: bool) -> None:
        """Remember constraints that are too large for good, or too slow for a while, so that repeated requests cost
        nothing.
        """
        with self._changed:
            last = self._refusals.pop(key, None)
            held_s = math.inf if is_lasting else min(2 * last.held_s, MAX_SLOW_S) if last else SLOW_S
            self._refusals[key] = _Refusal(message, self._clock() + held_s, held_s)
            if len(self._refusals) > MAX_REFUSALS:
                self._refusals.popitem(last=False)

    def _exceeded(self, error: KillableExceeded) -> str:
        if error.reason == "time":
            return f"the constraint takes longer to compile than {self._limits.compile_timeout_s:g} s; make it simpler"
        return (
            f"the constraint takes more memory to compile than {self._limits.compile_bytes >> 20} MiB; make it simpler"
        )

    def _check_size(self, constraint: Constraint) -> None:
        """Refuse sources far beyond any limit before they travel. Raises RequestError."""
        most = 8 * max(self._limits.schema_bytes, self._limits.choice_bytes, self._limits.grammar_bytes)
        if len(constraint.source) > most:
            raise refusal(
                constraint.param, f"a constraint must have at most {most} characters, got {len(constraint.source)}"
            )


def _shape(constraint: Constraint) -> list[str | bool]:
    """Return everything that a grammar depends on."""
    return [
        constraint.kind.value,
        constraint.source,
        constraint.whitespace,
        constraint.closes_objects,
        constraint.has_control,
    ]


def _size(grammar: DefineGrammar) -> int:
    return len(grammar.payload) + GRAMMAR_BYTES
