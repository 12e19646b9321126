"""What admission counts: the scopes of a request with their limits, what it costs, and its hard budgets.

admit.lua checks all of them, charges all or none, and finish.lua settles them (meters.lua, budgets.lua).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

from chat.relay.state.keys import Keys

BUDGET_KEPT_MS = 48 * 3600 * 1000
"""How long the counter of a budget outlives its window, for the runs that began in it."""


class ScopeKind(StrEnum):
    """What a limit or a budget is set on."""

    ORG = "org"
    PROJECT = "project"
    ACCOUNT = "account"
    KEY = "key"
    MODEL = "model"


class Measure(IntEnum):
    """What a rate counts. The values are places in the costs of admit.lua."""

    REQUESTS = 1
    INPUT = 2
    OUTPUT = 3
    TOKENS = 4


MEASURE_WORDS = {
    Measure.REQUESTS: "requests",
    Measure.INPUT: "input tokens",
    Measure.OUTPUT: "output tokens",
    Measure.TOKENS: "tokens",
}


class Period(StrEnum):
    """The time in which a rate is given back."""

    MINUTE = "minute"
    DAY = "day"

    @property
    def ms(self) -> int:
        return 60_000 if self is Period.MINUTE else 86_400_000


SLOTS = (
    (Measure.REQUESTS, Period.MINUTE),
    (Measure.TOKENS, Period.MINUTE),
    (Measure.INPUT, Period.MINUTE),
    (Measure.OUTPUT, Period.MINUTE),
    (Measure.REQUESTS, Period.DAY),
    (Measure.TOKENS, Period.DAY),
)
"""The rates that a scope may have, in the order of meters.lua."""
LIMITS = struct.Struct("<8d")
"""Of one scope: a limit for each slot, the most live runs, the percent of the queue; 0: none."""
COSTS = struct.Struct("<4d")
"""By measure."""
SIZE = struct.Struct("<5d")
"""Of a request, for budgets."""
BUDGET = struct.Struct("<5d")
"""Amount and prices."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `limit` of something at once, given back steadily over a period. Measure and period are one of SLOTS."""

    measure: Measure
    period: Period
    limit: int

    @property
    def slot(self) -> int:
        """Return its place in SLOTS. Raises ValueError for one that admission does not count."""
        return SLOTS.index((self.measure, self.period))

    def __str__(self) -> str:
        return f"{self.limit:,} {MEASURE_WORDS[self.measure]} per {self.period}"


@dataclass(frozen=True, slots=True)
class Scope:
    """One of the things that a request counts to, with its limits. A limit of 0 means no limit."""

    kind: ScopeKind
    name: str
    """Its name in Valkey."""
    title: str = ""
    """What people call it."""
    rates: tuple[Rate, ...] = ()
    max_live: int = 0
    queue_percent: int = 0
    """The share of a model's places, those of the queue included, that its requests may take."""
    max_context: int = 0
    """The tokens of a prompt and its answer together."""

    @property
    def is_limited(self) -> bool:
        return bool(self.rates or self.max_live or self.queue_percent or self.max_context)

    @property
    def packed_limits(self) -> bytes:
        """Return what meters.lua reads."""
        limits = [0] * len(SLOTS)
        for rate in self.rates:
            limits[rate.slot] = rate.limit
        return LIMITS.pack(*limits, self.max_live, self.queue_percent)


@dataclass(frozen=True, slots=True)
class PlainScopes:
    """What scripts know of the scopes of a request: those with limits, in their order."""

    meters: tuple[str, ...]
    """The names of their meters."""
    lives: tuple[str, ...]
    """The names of the sets in which a run is live: of each scope those of its limits."""
    limits: bytes
    """Packed, by scope."""


@lru_cache(maxsize=4096)
def scopes_plain(scopes: tuple[Scope, ...], keys: Keys, slug: str) -> PlainScopes:
    """Return the plain form of the scopes of a request to a model. It is the same for each request of a key."""
    limited = [scope for scope in scopes if scope.is_limited]
    lives = []
    for scope in limited:
        lives += [keys.admit_live(scope.name)] if scope.max_live else []
        lives += [keys.admit_live_at(scope.name, slug)] if scope.queue_percent else []
    meters = tuple(keys.meter(scope.name) for scope in limited)
    return PlainScopes(meters, tuple(lives), b"".join(scope.packed_limits for scope in limited))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request is charged until its end, when the real figures replace it.

    Rates take the usual tokens, as an excess is given back over the next minute. Hard budgets take the bounds.
    """

    requests: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    input_bound: int = 0
    """No prompt of this request has more tokens."""
    output_bound: int = 0
    """No answer has more tokens; -1: only the context bounds it."""
    num_answers: int = 1
    min_tokens: int = 0
    """No answer has fewer tokens, so a budget that leaves fewer refuses."""
    is_open: bool = False
    """The client has set no limit, so a budget may."""

    @property
    def by_measure(self) -> tuple[int, int, int, int]:
        return self.requests, self.input_tokens, self.output_tokens, self.input_tokens + self.output_tokens

    @property
    def packed(self) -> bytes:
        """Return what admit.lua and finish.lua read."""
        return COSTS.pack(*self.by_measure)

    @property
    def packed_size(self) -> bytes:
        """Return what budgets.lua reads."""
        return SIZE.pack(self.input_bound, self.output_bound, self.num_answers, self.is_open, self.min_tokens)


@dataclass(frozen=True, slots=True)
class BudgetMeter:
    """A hard budget in its present window. Amount and prices of a token are in units of the budget."""

    budget_id: int
    window: str
    ends_at_ms: int
    """0: never."""
    amount: int
    input_price: float = 1.0
    cached_price: float = 1.0
    output_price: float = 1.0
    reasoning_price: float = 1.0
    title: str = ""
    """Its name and amount."""

    @property
    def packed(self) -> bytes:
        """Return what budgets.lua reads."""
        prices = (self.input_price, self.cached_price, self.output_price, self.reasoning_price)
        return BUDGET.pack(self.amount, *prices)


def budgets_plain(budgets: tuple[BudgetMeter, ...], keys: Keys) -> tuple[list[str], bytes]:
    """Return the names of the windows of budgets, and what budgets.lua reads of them."""
    names = [keys.budget(budget.budget_id, budget.window) for budget in budgets]
    return names, b"".join(budget.packed for budget in budgets)
